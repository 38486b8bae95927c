"""What is known of cards, kept by way of the API server: the requests that come of it, and what it answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from pyscheduler.adapters.api import ApiServer
from pyscheduler.adapters.card_memory import CardMemory
from pyscheduler.adapters.lease import Leadership
from pyscheduler.config import Config
from pyscheduler.readers.cards.memory_shards import pack, shard_name, unpack
from tests.integration.little_api import Exchange, Fault, LittleApi

KIND = "configmaps"
CARDS = {"version": 1, "cards": {f"GPU-{number}": {"seen": 1_800_000_000 + number, "busy": 7} for number in range(2_500)}}


class Leader:
    leads = True


@pytest.fixture
def server() -> Iterator[LittleApi]:
    served = LittleApi(page=1)
    served.start()
    yield served
    served.stop()


@pytest.fixture
def memory(server: LittleApi, tmp_path: Path) -> CardMemory:
    api = ApiServer(str(server.kubeconfig(tmp_path)))
    return CardMemory(api, cast("Leadership", Leader()), Config(namespace="gpu"), structlog.get_logger(), lambda _: None)


def refuses(status: int) -> Fault:
    def answer(exchange: Exchange) -> None:
        exchange.answer(status, json.dumps({"message": f"configmaps: status {status}"}).encode())

    return answer


def written(server: LittleApi) -> list[dict[str, Any]]:
    return [json.loads(asked.body) for asked in server.asked if asked.verb in ("create", "update")]


def content(raw: dict[str, Any]) -> bytes:
    return base64.b64decode(raw["binaryData"]["cards.jsonl.gz"])


def test_shards_are_created_read_in_pages_updated_and_deleted(server: LittleApi, memory: CardMemory):
    assert memory.load() == {}
    memory.save(pack(CARDS))
    made = written(server)
    assert unpack({raw["metadata"]["name"]: content(raw) for raw in made}) == (CARDS, [])
    for raw in made:
        server.put(KIND, raw)
    assert unpack(memory.load()) == (CARDS, [])
    lists = [asked for asked in server.asked if asked.verb == "list"]
    assert [asked.query["labelSelector"] for asked in lists] == ["pyscheduler.io/card-memory"] * 3
    memory.save(pack({"version": 1, "cards": {"GPU-1": {"busy": 8}}}))
    assert [(asked.verb, asked.name) for asked in server.asked[-2:]] == [("update", shard_name(0)), ("delete", shard_name(1))]


@pytest.mark.parametrize("status", [403, 409, 500, 503])
def test_server_that_refuses_is_told_and_tried_again_with_the_next(server: LittleApi, memory: CardMemory, status: int):
    memory.load()
    # After a conflict it is asked who has made what is there, and refuses that too.
    server.fault(KIND, "create", refuses(status))
    server.fault(shard_name(0), "list", refuses(status))
    with capture_logs() as logs:
        memory.save(pack({"version": 1, "cards": {"GPU-1": {"busy": 1}}}))
        memory.save(pack({"version": 1, "cards": {"GPU-1": {"busy": 2}}}))
    assert [log["log_level"] for log in logs] == ["warning", "info"]
    assert f"answered {status}" in logs[0]["error"]
    assert unpack({"last": content(written(server)[-1])})[0]["cards"] == {"GPU-1": {"busy": 2}}


def test_server_that_is_away_costs_nothing_but_a_warning(server: LittleApi, memory: CardMemory):
    server.stop()
    with capture_logs() as logs:
        assert memory.load() == {}
        memory.save(pack(CARDS))
    assert [log["log_level"] for log in logs] == ["warning", "warning"]
    assert all("is the API server up and reachable?" in log["error"] for log in logs)
    server.start()
    assert memory.late() == {}
    memory.save(pack(CARDS))
    assert unpack({str(index): content(raw) for index, raw in enumerate(written(server))}) == (CARDS, [])


def test_shard_that_was_deleted_or_is_gone_already_is_no_failure(server: LittleApi, memory: CardMemory):
    memory.load()
    memory.save(pack(CARDS))
    server.fault(KIND, "update", refuses(404))
    server.fault(KIND, "delete", refuses(404))
    with capture_logs() as logs:
        memory.save(pack({"version": 1, "cards": {"GPU-1": {"busy": 8}}}))
    assert logs == []
    assert [asked.verb for asked in server.asked[-3:]] == ["update", "create", "delete"]
