"""Lint of the live cluster: when its topology has changed, in a process of its own; each finding is logged once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.api import ApiServer
from pyscheduler.adapters.metrics import Metrics
from pyscheduler.adapters.survey import survey
from pyscheduler.adapters.worker import Worker
from pyscheduler.config import Config
from pyscheduler.core.findings import Finding
from pyscheduler.core.lint import lint
from pyscheduler.errors import KubernetesError

__all__ = ["Linter", "Report", "lint_cluster"]

# Seconds between looks at whether anything changed.
LOOK_S: Final = 2.0
# Seconds between two runs, and how many times as long as a run the pause is at least: it costs the API server a full list.
PAUSE_S: Final = 60.0
PAUSE_RUNS: Final = 20


@dataclass(frozen=True, slots=True)
class Report:
    """`counts` is of all findings, by code and severity; `findings` are those that reading a node alone does not show."""

    counts: dict[tuple[str, str], int]
    findings: tuple[Finding, ...]


def lint_cluster(config: Config, now: float) -> Report:
    """Read the cluster and check it. Runs in a process of its own: it takes seconds, and memory that is not needed after."""
    records, beside = survey(ApiServer(config.kubeconfig), config).records(config.resources, config.fabric, config.weights, now)
    read = {finding for record in records for finding in record.findings}
    found = lint(records, beside)
    counts = Counter((finding.code, finding.severity.value) for finding in found)
    return Report(dict(counts), tuple(finding for finding in found if finding not in read))


class Linter:
    """Runs lint after changes, in a thread of its own."""

    def __init__(self, config: Config, version: Callable[[], int], metrics: Metrics, logger: FilteringBoundLogger) -> None:
        self._config = config
        self._version = version
        self._metrics = metrics
        self._logger = logger
        self._told: frozenset[Finding] = frozenset()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="linter", daemon=True)

    def start(self) -> None:
        """Begin: the first run follows at once."""
        self._thread.start()

    def stop(self) -> None:
        """End. Does not wait for a run."""
        self._stopped.set()

    def _run(self) -> None:
        checked, pause = -1, 0.0
        while not self._stopped.wait(pause or LOOK_S):
            pause = 0.0
            if (version := self._version()) != checked:
                begun = time.monotonic()
                if self._check():
                    checked = version
                pause = max(PAUSE_S, PAUSE_RUNS * (time.monotonic() - begun))

    def _check(self) -> bool:
        worker = Worker()
        try:
            report = worker.run(lint_cluster, self._config, time.time())
        except KubernetesError as cause:
            self._logger.warning("lint not run", error=str(cause))
            return False
        except Exception:  # a check that trips a bug must not end the service
            self._logger.exception("lint failed")
            return True
        finally:
            worker.stop()
        self._tell(report)
        return True

    def _tell(self, report: Report) -> None:
        self._metrics.findings(report.counts)
        found = frozenset(report.findings)
        for finding in sorted(found - self._told):
            self._logger.warning(
                "topology finding",
                code=finding.code,
                severity=finding.severity.value,
                node=finding.node,
                finding=finding.message,
                remedy=finding.remedy,
            )
        self._told = found
