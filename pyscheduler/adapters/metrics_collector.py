"""Polls the metrics of cards at their interval. All work on the answers is done in a worker process; here arrives how it went."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.metrics import Metrics
from pyscheduler.adapters.prometheus import Collected, Memory
from pyscheduler.errors import PyschedulerError

__all__ = ["MetricsCollector", "PollError"]

# What makes a poll: the nodes, what the last one left, and now in Unix seconds.
Ask = Callable[[Mapping[str, str], Memory, float], Collected | None]

# Problems that are told of one poll.
_TOLD_MAX: Final = 5


class PollError(PyschedulerError):
    """A poll came to nothing; the next one may not."""


class MetricsCollector:
    """Polls in a thread of its own until `stop`.

    Parameters
    ----------
    ask
        Polls and judges what came, in the worker process. Raises `PollError`. None where there is nothing to ask.
    nodes
        Returns names and addresses of the nodes, to their names.
    interval_s
        Seconds from poll to poll.
    metrics, logger
        Where it is told how it goes.
    now
        Unix seconds.
    """

    def __init__(
        self,
        ask: Ask,
        nodes: Callable[[], Mapping[str, str]],
        interval_s: float,
        metrics: Metrics,
        logger: FilteringBoundLogger,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._ask = ask
        self._nodes = nodes
        self._interval_s = interval_s
        self._metrics = metrics
        self._logger = logger
        self._now = now
        self._memory = Memory()
        self._newest: float | None = None
        self._last = -math.inf
        self._told: tuple[str, ...] = ()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        metrics.watch_metric_age(self.age_s)

    def start(self) -> None:
        """Begin with a poll at once."""
        self._thread.start()

    def stop(self) -> None:
        """End. Does not wait for a poll."""
        self._stopped.set()

    def age_s(self) -> float:
        """Return the age of the newest sample, -1 before the first."""
        return -1.0 if self._newest is None else max(self._now() - self._newest, 0.0)

    def poll(self) -> float:
        """Ask once, and return the seconds until the next poll."""
        now = self._now()
        if now < self._last - self._interval_s:
            self._set_back(now)
        self._last = now
        try:
            collected = self._ask(self._nodes(), self._memory, now)
        except PollError as cause:
            self._failed(str(cause))
        except Exception as cause:  # a poll that trips a bug must not end the service
            if not self._stopped.is_set():
                self._logger.exception("metrics not read")
                self._failed(repr(cause))
        else:
            if collected is not None and self._take(collected, now):
                return 0.0  # a piece of the past: the rest follows at once
        # Never longer, though the clock may have been set back meanwhile.
        return min(max(self._interval_s - (self._now() - now), 0.0), self._interval_s)

    def _take(self, collected: Collected, now: float) -> bool:
        """Take what a poll brought. Tell whether it was a piece of the past alone."""
        self._memory = collected.memory
        self._newest = max(self._newest or -math.inf, collected.newest) if collected.newest is not None else self._newest
        self._metrics.polled("partial" if collected.problems else "complete", collected.series, collected.seconds)
        self._tell((*collected.problems, *(f"{f.message}: {f.remedy}" if f.remedy else f.message for f in collected.findings)))
        return collected.memory.polled is not None and now - collected.memory.polled > self._interval_s

    def _set_back(self, now: float) -> None:
        """Go on from an earlier time: no sample is newer than that."""
        self._newest = None if self._newest is None else min(self._newest, now)
        what = f"the clock was set back by {self._last - now:.0f} s"
        self._logger.warning("metrics of cards", problem=what, remedy="polls go on from the earlier time")

    def _failed(self, why: str) -> None:
        self._metrics.polled("failed", 0, 0.0)
        self._tell((why,))

    def _tell(self, problems: tuple[str, ...]) -> None:
        """Log what is wrong, once for as long as it is the same."""
        if problems == self._told:
            return
        for problem in problems[:_TOLD_MAX]:
            if problem not in self._told:
                self._logger.warning("metrics of cards", problem=problem)
        if self._told and not problems:
            self._logger.info("metrics of cards are complete again")
        self._told = problems

    def _run(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            pause = self.poll()
