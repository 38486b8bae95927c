"""One worker process for what would hold the interpreter lock for long: list pages and class tables."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import ParamSpec, TypeVar

__all__ = ["Worker"]

P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """Runs pure functions in another process, which ends with this one. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool = self._new_pool()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the function's result; a worker that died is replaced once."""
        pool = self._pool
        try:
            return pool.submit(function, *args, **kwargs).result()
        except BrokenProcessPool:
            with self._lock:
                if self._pool is pool:
                    self._pool = self._new_pool()
            return self._pool.submit(function, *args, **kwargs).result()

    def stop(self) -> None:
        """End the process."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    @staticmethod
    def _new_pool() -> ProcessPoolExecutor:
        # Not fork: gRPC's threads do not survive it.
        return ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """End this process when the service does, also if it is killed: the pool's own queue would wait for it for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
