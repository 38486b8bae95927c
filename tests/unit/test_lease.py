"""A service leads while the scheduler of its own host holds the Lease, and tells each change once."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from pyscheduler.adapters.lease import Leadership, lease_query
from pyscheduler.adapters.metrics import Metrics

UNIQUE = "425e2907-7129-4f80-95f3-29c56375cd45"


class Service:
    """What is told to one service on host ``gpu-0``."""

    def __init__(self) -> None:
        self.told: list[bool] = []
        self.metrics = Metrics(structlog.get_logger())
        self.leadership = Leadership("gpu-0", self.told.append, self.metrics, structlog.get_logger())

    def metric(self) -> float:
        lines = self.metrics.exposition().decode().splitlines()
        return float(next(line for line in lines if line.startswith("pyscheduler_leads ")).split()[1])


def lease(holder: str | None) -> dict[str, Any]:
    return {"metadata": {"name": "kube-scheduler"}, "spec": {} if holder is None else {"holderIdentity": holder}}


@pytest.mark.parametrize(
    ("holder", "leads"),
    [
        pytest.param(f"gpu-0_{UNIQUE}", True, id="own host"),
        pytest.param(f"gpu-1_{UNIQUE}", False, id="another host"),
        pytest.param(f"gpu-01_{UNIQUE}", False, id="a host whose name begins with ours"),
        pytest.param(f"gpu-0_b_{UNIQUE}", False, id="a host whose name begins with ours and an underscore"),
        pytest.param("gpu-0", False, id="a holder that is no scheduler"),
        pytest.param("", False, id="given up"),
        pytest.param(None, False, id="never held"),
    ],
)
def test_holder_of_the_own_host_leads(holder: str | None, leads: bool) -> None:
    service = Service()
    service.leadership.replace([lease(holder)])
    assert (service.told, service.metric()) == ([leads], float(leads))


def test_each_change_is_told_and_logged_once() -> None:
    service = Service()
    with capture_logs() as logs:
        for host in ("gpu-1", "gpu-1", "gpu-2", "gpu-0", "gpu-0", "gpu-1"):
            service.leadership.changed(lease(f"{host}_{UNIQUE}"))
    assert service.told == [False, True, False]
    assert [line["event"] for line in logs] == ["stands by", "leads", "stands by"]
    assert [line["holder"].partition("_")[0] for line in logs] == ["gpu-1", "gpu-0", "gpu-1"]


def test_deleted_lease_is_held_by_nobody() -> None:
    service = Service()
    service.leadership.replace([lease(f"gpu-0_{UNIQUE}")])
    service.leadership.gone(lease(f"gpu-0_{UNIQUE}"))
    assert (service.told, service.metric()) == ([True, False], 0)


def test_lease_that_is_not_there_is_told_with_the_remedy() -> None:
    service = Service()
    with capture_logs() as logs:
        service.leadership.replace([])
    assert service.told == [False]
    [warning] = [line for line in logs if line["log_level"] == "warning"]
    assert "leaderElection" in warning["remedy"]


def test_without_election_the_service_leads() -> None:
    service = Service()
    service.leadership.alone()
    assert (service.told, service.metric()) == ([True], 1)


def test_before_anything_is_known_nobody_leads() -> None:
    service = Service()
    assert (service.told, service.metric()) == ([], 0)


def test_one_lease_and_no_other_is_asked_for() -> None:
    path, selector = lease_query("kube-system/gpu-topology")
    assert path == "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    assert selector == {"fieldSelector": "metadata.name=gpu-topology"}
