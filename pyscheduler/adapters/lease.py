"""Whether this service leads: the scheduler beside it was elected, says the Lease of the election."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.metrics import Metrics

__all__ = ["Leadership", "lease_query"]

Raw = Mapping[str, Any]

_REMEDY: Final = "it comes with the first scheduler that is elected: check that `lease` names what leaderElection names"


def lease_query(lease: str) -> tuple[str, dict[str, str]]:
    """Return path and selector that list and watch one Lease, of which `lease` is ``namespace/name``, and no other."""
    namespace, _, name = lease.partition("/")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return path, {"fieldSelector": f"metadata.name={name}"}


class Leadership:
    """Follows one Lease. This service leads while the holder is a scheduler of its own host.

    A holder that does not renew the Lease any more is one until another takes the Lease: until then nobody else would do
    what the leader's service does.

    Parameters
    ----------
    host
        The host name that this service shares with its scheduler.
    told
        Called with each change, also with the first thing that is known.

    """

    def __init__(self, host: str, told: Callable[[bool], None], metrics: Metrics, logger: FilteringBoundLogger) -> None:
        self._host = host
        self._told = told
        self._metrics = metrics
        self._logger = logger
        self._leads: bool | None = None

    @property
    def leads(self) -> bool:
        """Whether this service leads, as far as is known."""
        return self._leads is True

    def alone(self) -> None:
        """Lead: nobody is elected."""
        self._set(True, holder="")

    def replace(self, items: list[Raw]) -> None:
        """Take the full list: the Lease, or nothing."""
        if items:
            self.changed(items[0])
        else:
            self._logger.warning("no lease", remedy=_REMEDY)
            self._set(False, holder="")

    def changed(self, raw: Raw) -> None:
        """Take the Lease as it is now."""
        holder = raw.get("spec", {}).get("holderIdentity") or ""
        # kube-scheduler writes its host name, "_", and something unique that has no "_".
        self._set(holder.rpartition("_")[0] == self._host, holder)

    def gone(self, _raw: Raw) -> None:
        """Take that the Lease was deleted."""
        self._set(False, holder="")

    def _set(self, leads: bool, holder: str) -> None:  # noqa: FBT001
        if leads is self._leads:
            return
        self._leads = leads
        self._metrics.leads(leads)
        self._logger.info("leads" if leads else "stands by", host=self._host, holder=holder)
        self._told(leads)
