"""Device tables are built once each, beside what goes on, and whatever goes wrong with one harms only that one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from pyscheduler.adapters.tables import Tables
from pyscheduler.adapters.worker import Worker
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.device_table import MAX_GPUS, DeviceTable

WAIT_S = 20.0


class InlineWorker:
    """Runs what it is given in the thread that asks, after `gate` is open; keeps what it was asked for."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.asked: list[DeviceClass] = []
        self.fails: Callable[[DeviceClass], bool] = lambda _: False

    def run(self, function: Callable[..., Any], kind: DeviceClass) -> Any:
        self.asked.append(kind)
        self.begun.set()
        assert self.gate.wait(WAIT_S)
        if self.fails(kind):
            raise ArithmeticError("the sets do not add up")
        return function(kind)


def pair(number: int = 0) -> DeviceClass:
    """Return a class of two GPUs; each number is another class."""
    return DeviceClass.of([f"card {number}", f"card {number}"], [0, 0], {(0, 1): "NV2"})


@pytest.fixture
def worker() -> InlineWorker:
    return InlineWorker()


@pytest.fixture
def tables(worker: InlineWorker) -> Iterator[Tables]:
    started = Tables(cast("Worker", worker), structlog.get_logger())
    started.start()
    yield started
    worker.gate.set()
    started.stop()


def test_table_is_built_once_and_every_build_is_told(worker: InlineWorker, tables: Tables) -> None:
    told = threading.Semaphore(0)
    tables.built = told.release
    assert tables.find(pair()) is None
    assert told.acquire(timeout=WAIT_S)
    table = tables.find(pair())
    assert isinstance(table, DeviceTable)
    assert tables.find(pair()) is table
    assert worker.asked == [pair()]


def test_asking_does_not_wait_for_the_build(worker: InlineWorker, tables: Tables) -> None:
    worker.gate.clear()
    assert tables.find(pair(1)) is None
    assert worker.begun.wait(WAIT_S)
    assert tables.find(pair(1)) is None
    assert tables.find(pair(2)) is None
    assert not tables.wait(0.01)
    worker.gate.set()
    assert tables.wait(WAIT_S)
    assert worker.asked == [pair(1), pair(2)]


def test_nothing_asked_for_is_nothing_to_wait_for(tables: Tables) -> None:
    assert tables.wait(0.0)


def test_build_that_fails_leaves_a_sentence_and_is_not_tried_again(worker: InlineWorker, tables: Tables) -> None:
    worker.fails = lambda kind: kind == pair(1)
    with capture_logs() as logs:
        tables.find(pair(1))
        tables.find(pair(2))
        assert tables.wait(WAIT_S)
    assert "the sets do not add up" in str(tables.find(pair(1)))
    assert isinstance(tables.find(pair(2)), DeviceTable)
    assert [line["event"] for line in logs] == ["device table not built"]
    assert worker.asked == [pair(1), pair(2)]


def test_more_gpus_than_can_be_judged_are_told_at_once(worker: InlineWorker, tables: Tables) -> None:
    gpus = MAX_GPUS + 1
    why = tables.find(DeviceClass.of([None] * gpus, [None] * gpus, {}))
    assert isinstance(why, str)
    assert why.startswith(f"machine has {gpus} GPUs; sets are judged up to {MAX_GPUS}")
    assert why.count("machine has") == 1
    assert worker.asked == []


def test_listener_that_trips_a_bug_does_not_end_the_building(tables: Tables) -> None:
    def trips() -> None:
        raise RuntimeError("no")

    tables.built = trips
    with capture_logs() as logs:
        tables.find(pair(1))
        assert tables.wait(WAIT_S)
        tables.find(pair(2))
        assert tables.wait(WAIT_S)
    assert isinstance(tables.find(pair(2)), DeviceTable)
    assert "table not told" in {line["event"] for line in logs}


def test_end_leaves_what_waits_and_complains_of_nothing(worker: InlineWorker) -> None:
    tables = Tables(cast("Worker", worker), structlog.get_logger())
    told = threading.Event()
    tables.built = told.set
    worker.gate.clear()
    # As a worker whose process has ended.
    worker.fails = lambda _: True
    with capture_logs() as logs:
        tables.start()
        for number in range(5):
            tables.find(pair(number))
        assert worker.begun.wait(WAIT_S)
        tables.stop()
        worker.gate.set()
        assert told.wait(WAIT_S)
        assert not tables.wait(0.05)
    assert worker.asked == [pair(0)]
    assert logs == []


def test_many_threads_that_ask_for_the_same_classes_cause_one_build_of_each(worker: InlineWorker, tables: Tables) -> None:
    kinds = [pair(number) for number in range(30)]
    together = threading.Barrier(6)

    def ask() -> None:
        together.wait(WAIT_S)
        for kind in kinds:
            tables.find(kind)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert tables.wait(WAIT_S)
    assert len(worker.asked) == 30
    assert set(worker.asked) == set(kinds)
