"""Lint of the live cluster: when its topology has changed, in a process of its own; each finding is logged once."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.api import ApiServer
from pyscheduler.adapters.metrics import Metrics
from pyscheduler.adapters.survey import survey
from pyscheduler.config import Config
from pyscheduler.core.findings import Finding
from pyscheduler.core.lint import lint
from pyscheduler.errors import KubernetesError

__all__ = ["Linter", "Report", "lint_apart", "lint_cluster"]

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
    records, beside = survey(ApiServer(config.kubeconfig), config).records(config.reader(), config.fabric, config.weights, now)
    read = {finding for record in records for finding in record.findings}
    found = lint(records, beside)
    counts = Counter((finding.code, finding.severity.value) for finding in found)
    return Report(dict(counts), tuple(finding for finding in found if finding not in read))


def lint_apart(config: Config) -> Report:
    """Run `lint_cluster` in a process of its own, which ends with this one at the latest; raises as it does."""
    # Not fork: gRPC's threads do not survive it. Not a pool: at the end of this process it would be waited for.
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, config), name="lint", daemon=True)
    process.start()
    sender.close()
    with receiver:
        try:
            answer: Report | Exception = receiver.recv()
        except EOFError:
            answer = ChildProcessError("the process of lint ended without an answer: was it killed for its memory?")
    process.join()
    if isinstance(answer, Exception):
        raise answer
    return answer


def _answer(sender: Connection, config: Config) -> None:
    try:
        answer: Report | Exception = lint_cluster(config, time.time())
    except Exception as cause:  # noqa: BLE001  raised again where it can be logged
        answer = cause
    with contextlib.suppress(BrokenPipeError):  # the service was killed: nobody waits for an answer
        sender.send(answer)


class Linter:
    """Runs lint after changes, in a thread of its own.

    Parameters
    ----------
    check
        Reads the cluster and checks it.
    version
        A number that changes with whatever lint looks at.
    metrics, logger
        Where the findings are told.
    clock
        Seconds; its origin does not matter.
    """

    def __init__(
        self,
        check: Callable[[], Report],
        version: Callable[[], int],
        metrics: Metrics,
        logger: FilteringBoundLogger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._check = check
        self._version = version
        self._metrics = metrics
        self._logger = logger
        self._clock = clock
        self._checked: int | None = None
        self._told: frozenset[Finding] = frozenset()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="linter", daemon=True)

    def start(self) -> None:
        """Begin: the first run follows after `LOOK_S`."""
        self._thread.start()

    def stop(self) -> None:
        """End. Does not wait for a run."""
        self._stopped.set()

    def look(self) -> float:
        """Run lint if there is something new to it; return the seconds until the next look."""
        # Taken before the run: what changes during it is looked at again.
        version = self._version()
        if version == self._checked:
            return LOOK_S
        begun = self._clock()
        try:
            report = self._check()
        except KubernetesError as cause:
            self._logger.warning("lint not run", error=str(cause))
        except Exception:  # a check that trips a bug must not end the service
            if not self._stopped.is_set():
                self._logger.exception("lint failed")
            self._checked = version
        else:
            self._checked = version
            self._tell(report)
        return max(PAUSE_S, PAUSE_RUNS * (self._clock() - begun))

    def _run(self) -> None:
        pause = LOOK_S
        while not self._stopped.wait(pause):
            pause = self.look()

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
