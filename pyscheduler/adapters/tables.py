"""Device tables by machine class: equal machines share one, which a worker process builds while decisions go on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from pyscheduler.adapters.worker import Worker
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.device_table import MAX_GPUS, DeviceTable, TooManyGpusError

__all__ = ["Tables"]


class Tables:
    """Builds each table once, in the order in which they are first asked for. Safe to use from several threads."""

    def __init__(self, worker: Worker, logger: FilteringBoundLogger) -> None:
        self._worker = worker
        self._logger = logger
        self._known: dict[DeviceClass, DeviceTable | str] = {}
        self._wanted: queue.SimpleQueue[DeviceClass | None] = queue.SimpleQueue()
        self._asked: set[DeviceClass] = set()
        self._change = threading.Condition()
        self._stopped = threading.Event()
        # Called after each build, from the building thread.
        self.built: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="tables", daemon=True)

    def start(self) -> None:
        """Begin to build."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present build."""
        self._stopped.set()
        self._wanted.put(None)

    def find(self, kind: DeviceClass) -> DeviceTable | str | None:
        """Return the table of the class, or a sentence on why there is none; None while it is being built."""
        if kind.gpus > MAX_GPUS:
            return str(TooManyGpusError(kind.gpus))
        with self._change:
            known = self._known.get(kind)
            if known is None and kind not in self._asked:
                self._asked.add(kind)
                self._wanted.put(kind)
        return known

    def wait(self, seconds: float) -> bool:
        """Wait until all that was asked for is built. Return whether it is."""
        with self._change:
            return self._change.wait_for(lambda: not self._asked, seconds)

    def _run(self) -> None:
        while (kind := self._wanted.get()) is not None and not self._stopped.is_set():
            table = self._build(kind)
            with self._change:
                self._known[kind] = table
                self._asked.discard(kind)
                self._change.notify_all()
            try:
                self.built()
            except Exception:  # who is told must not end the building of other tables
                self._logger.exception("table not told")

    def _build(self, kind: DeviceClass) -> DeviceTable | str:
        try:
            return self._worker.run(DeviceTable.build, kind)
        except Exception as cause:  # a class that trips a bug must not keep the service from other nodes
            if not self._stopped.is_set():  # the worker ends, too
                self._logger.exception("device table not built")
            return f"its links cannot be judged ({type(cause).__name__}: {cause}); please report it"
