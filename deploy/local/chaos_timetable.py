"""Work at times: one thread has the timetable, others do the work."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Final, Self

from deploy.local.errors import ApiError, LocalError, NeverHappenedError

_WORKERS: Final = 16
_RETRY_S: Final = 0.05
# What is to be created is there already (the reply to an earlier try was lost), or what is to be changed is gone.
_DONE: Final = (404, 409)
_WRONG: Final = (400, 422)

Work = Callable[[], object]


class Timetable:
    """Does work at times, and requests until the API server answers them. A context manager: its threads end with it."""

    def __init__(self) -> None:
        self._workers = ThreadPoolExecutor(_WORKERS)
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Work]] = []
        self._numbers = count()
        self._under_way = 0
        self._hurries = False
        self._failure: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="timetable", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopped.set()
            self._changed.notify_all()
        self._thread.join()
        self._workers.shutdown(cancel_futures=True)

    def after(self, delay_s: float, work: Work) -> None:
        """Do work in some seconds."""
        with self._changed:
            at_s = time.monotonic() + (0 if self._hurries else delay_s)
            heapq.heappush(self._due, (at_s, next(self._numbers), work))
            self._changed.notify_all()

    def hurry(self) -> None:
        """Do at once, in order, what is still to be done, and all that comes."""
        with self._changed:
            self._hurries = True
            self._due = [(0.0, number, work) for number, (_, _, work) in enumerate(sorted(self._due, key=lambda each: each[:2]))]
            self._numbers = count(len(self._due))
            self._changed.notify_all()

    def insist(self, request: Work) -> None:
        """Send a request again and again until the API server has answered it, or the timetable ends.

        Raises
        ------
        ApiError
            If the request is wrong.

        """
        while not self._stopped.is_set():
            try:
                request()
            except LocalError as error:
                if isinstance(error, ApiError) and error.status in _DONE:
                    return
                if isinstance(error, ApiError) and error.status in _WRONG:
                    raise
                self._stopped.wait(_RETRY_S)
            else:
                return

    def check(self) -> None:
        """Raise what any work has raised."""
        if self._failure:
            raise self._failure

    def wait_idle(self, timeout_s: float) -> None:
        """Wait until nothing is to be done.

        Raises
        ------
        NeverHappenedError
            If something still is after `timeout_s` seconds.

        """
        with self._changed:
            idle = self._changed.wait_for(lambda: self._failure or not (self._due or self._under_way), timeout_s)
        self.check()
        if not idle:
            raise NeverHappenedError(
                f"after {timeout_s:g} s requests of the chaos run are still unanswered: see the logs of kube-apiserver and etcd"
            )

    def _run(self) -> None:
        with self._changed:
            while not self._stopped.is_set():
                left_s = self._due[0][0] - time.monotonic() if self._due else None
                if left_s is None or left_s > 0:
                    self._changed.wait(left_s)
                    continue
                _, _, work = heapq.heappop(self._due)
                self._under_way += 1
                self._workers.submit(self._do, work)

    def _do(self, work: Work) -> None:
        failure = None
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to `check`
            failure = error
        with self._changed:
            self._under_way -= 1
            self._failure = self._failure or failure
            self._changed.notify_all()
