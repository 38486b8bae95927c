"""The process that judges cards dies: the poll goes on in another, and one that dies again and again costs polls, no more."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest
import structlog
from structlog.testing import capture_logs

from pyscheduler.adapters import card_judge
from pyscheduler.adapters.card_judge import Judged, LostError
from pyscheduler.adapters.cards import Cards
from pyscheduler.adapters.metrics import Metrics
from pyscheduler.adapters.prometheus import Collected, Memory
from pyscheduler.adapters.worker import Worker
from pyscheduler.core.capacity.config import CapacityConfig
from pyscheduler.core.cards import NodeCards
from pyscheduler.core.cluster import Cluster
from pyscheduler.readers.cards.memory_shards import Shards
from pyscheduler.readers.metrics_config import MetricsConfig
from tests.builders import node, uuids
from tests.integration.little_api import LittleApi

P = ParamSpec("P")
T = TypeVar("T")

CARD = uuids("hgx-h100", "a", 0)[0]


def dies(life: int, *_: Any) -> Judged:
    """Stands for `judge`, and ends its process."""
    if life != os.getpid():
        raise LostError
    os._exit(1)


def lives(life: int, *rest: Any) -> Judged:
    """Stands for `judge`, and finds one card slow."""
    if life != os.getpid():
        raise LostError
    now = rest[-1]
    return Judged(Collected((), Memory(now, now)), "", {"a": NodeCards({CARD: "slow"})}, {}, 0, frozen=False)


class Mortal(Worker):
    """Runs `judge` in place of that of `card_judge`; notes when a judge is begun, and what it is told of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.judge: Callable[..., Judged] = lives
        self.begun = 0
        self.nodes: list[object] = []

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.begun += function is card_judge.begin
        if function is not card_judge.judge:
            return super().run(function, *args, **kwargs)
        self.nodes.append(args[3])
        return super().run(self.judge, *args, **kwargs)  # type: ignore[return-value]


class NoStore:
    """Keeps nothing."""

    def load(self) -> Shards:
        return {}

    def late(self) -> Shards | None:
        """There is never more."""

    def save(self, shards: Shards) -> None:
        """Forget it."""


class Setting:
    def __init__(self) -> None:
        self.worker = Mortal()
        self.cluster = Cluster(epoch=1, scheduler_name="gpu-topology")
        self.cluster.observe_node(node("a", "hgx-h100"), 0.0)
        logger = structlog.get_logger()
        self.addresses = {"10.0.0.7": "a"}
        self.metrics = Metrics(logger)
        self.cards = Cards(
            MetricsConfig(url="http://prometheus"),
            CapacityConfig(),
            self.cluster,
            threading.Lock(),
            lambda: 0.0,
            dict,
            lambda: self.addresses,
            NoStore(),
            self.worker,
            self.metrics,
            logger,
        )

    def poll(self) -> list[str]:
        """Poll once, and return what was logged."""
        with capture_logs() as logs:
            self.cards._collector.poll()
        return [str(entry.get("problem", entry["event"])) for entry in logs]

    def free(self) -> int:
        return self.cluster.state(0).free


@pytest.fixture
def setting() -> Iterator[Setting]:
    made = Setting()
    yield made
    made.cards.stop()


def test_worker_that_has_died_is_replaced_within_the_poll(setting: Setting) -> None:
    assert setting.poll() == []
    assert setting.free() == 7
    with pytest.raises(Exception, match="terminated abruptly"):
        setting.worker.run(os._exit, 1)
    assert setting.poll() == ["the worker that judges cards has died; another began with what was saved"]
    assert setting.poll() == []
    assert (setting.worker.begun, len(setting.worker.nodes)) == (2, 4)


def test_worker_that_dies_of_every_poll_is_tried_twice_in_each_and_told_of_once(setting: Setting) -> None:
    setting.worker.judge = dies
    assert setting.poll() == ["the worker that judges cards dies whenever it polls: is memory short? The next poll tries again"]
    assert (setting.worker.begun, setting.free()) == (2, 8)
    assert setting.poll() == []
    assert setting.worker.begun == 4
    assert b'pyscheduler_metric_polls_total{outcome="failed"} 2.0' in setting.metrics.exposition()
    assert setting.cards.cards() == []
    setting.worker.judge = lives
    assert setting.poll() == ["metrics of cards are complete again"]
    assert (setting.worker.begun, setting.free()) == (5, 7)


def test_nodes_are_told_to_a_judge_once_and_when_they_change(setting: Setting) -> None:
    setting.poll()
    setting.poll()
    first = {"a": "a", "10.0.0.7": "a"}
    assert setting.worker.nodes == [first, None]
    setting.addresses = {"10.0.0.8": "a"}
    setting.poll()
    second = {"a": "a", "10.0.0.8": "a"}
    assert setting.worker.nodes[2:] == [second]
    with pytest.raises(Exception, match="terminated abruptly"):
        setting.worker.run(os._exit, 1)
    setting.poll()
    assert setting.worker.nodes[3:] == [None, second]


def test_worker_gives_way_to_the_service_and_outlives_a_ctrl_c_that_is_meant_for_it() -> None:
    worker = Worker()
    try:
        process = worker.run(os.getpid)
        assert worker.run(os.getpriority, os.PRIO_PROCESS, 0) > os.getpriority(os.PRIO_PROCESS, 0)
        os.kill(process, signal.SIGINT)
        assert worker.run(os.getpid) == process
    finally:
        worker.stop()


def test_worker_that_is_busy_ends_at_once_and_is_not_replaced() -> None:
    worker = Worker()
    process = worker.run(os.getpid)
    with ThreadPoolExecutor(1) as callers:
        call = callers.submit(worker.run, time.sleep, 600.0)
        ended = os.pidfd_open(process)
        try:
            worker.stop()
            assert select.select([ended], [], [], 10.0)[0]
        finally:
            os.close(ended)
        with pytest.raises((BrokenProcessPool, CancelledError)):
            call.result(10.0)


def test_worker_ends_with_a_service_that_is_killed() -> None:
    code = "import os; from pyscheduler.adapters.worker import Worker; Worker().run(os.getpid); os.kill(os.getpid(), 9)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as service:
        assert service.stdout is not None
        # The worker has it, too: its end is read when both have ended.
        assert select.select([service.stdout], [], [], 60.0)[0]
        assert service.stdout.read() == b""
    assert service.returncode == -signal.SIGKILL


def test_service_ends_though_prometheus_does_not_answer(tmp_path: Path) -> None:
    api = LittleApi()
    api.start()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(60)
        config = {
            "socket": str(tmp_path / "s.sock"),
            "kubeconfig": str(api.kubeconfig(tmp_path)),
            "http_port": 0,
            "metrics": {"url": f"http://127.0.0.1:{silent.getsockname()[1]}", "timeout": "120s"},
        }
        (tmp_path / "config").write_text(json.dumps(config))
        command = [sys.executable, "-m", "pyscheduler", "serve", "--config", str(tmp_path / "config")]
        try:
            with subprocess.Popen(command, stderr=subprocess.DEVNULL) as service:
                asked, _ = silent.accept()
                with asked:
                    service.terminate()
                    assert service.wait(15) == 0
        finally:
            api.stop()
