"""One worker process for what would hold the interpreter lock for long: list pages and class tables."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection, wait
from typing import Final, ParamSpec, TypeVar

__all__ = ["Worker"]

P = ParamSpec("P")
T = TypeVar("T")

# Not fork: gRPC's threads do not survive it.
_CONTEXT: Final = multiprocessing.get_context("spawn")
# What is done here can wait for what is served: where cores are few, calls of the scheduler come first.
_NICENESS: Final = 10


class Worker:
    """Runs pure functions in another process, which ends with this one. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        # Nothing is ever sent: the process ends when no writing end is left.
        self._lives, self._life = _CONTEXT.Pipe(duplex=False)
        self._pool = self._new_pool()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the function's result; a worker that died is replaced once."""
        pool = self._pool
        try:
            return pool.submit(function, *args, **kwargs).result()
        except BrokenProcessPool:
            with self._lock:
                if self._stopped:
                    raise
                if self._pool is pool:
                    self._pool = self._new_pool()
            return self._pool.submit(function, *args, **kwargs).result()

    def stop(self) -> None:
        """End the process at once, whatever it is at."""
        with self._lock:
            self._stopped = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._life.close()

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(max_workers=1, mp_context=_CONTEXT, initializer=_begin, initargs=(self._lives,))


def _begin(lives: Connection) -> None:
    """Give way to the service, and end when it does, also if it is killed: the pool's own queue would wait for it for ever."""
    os.nice(_NICENESS)
    # A Ctrl-C goes to all processes of a terminal; the service has still something to ask of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        wait([lives])
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
