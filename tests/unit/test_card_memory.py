"""What is known of cards outlives the service: packed in shards, written by the leader, over nobody's head."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import random
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from pyscheduler.adapters.api import ApiServer, Gone
from pyscheduler.adapters.card_config_maps import LABEL
from pyscheduler.adapters.card_memory import CardMemory
from pyscheduler.adapters.lease import Leadership
from pyscheduler.config import Config
from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.errors import KubernetesError
from pyscheduler.readers.cards.memory_shards import SHARDS_MAX, pack, shard_name, unpack
from pyscheduler.readers.metrics_config import MetricsConfig

PATH = "/api/v1/namespaces/gpu/configmaps"
FIRST = shard_name(0)
Raw = dict[str, Any]


def entry(number: int = 0, seen: int = 1_800_000_000) -> Raw:
    """Return as much as is kept of a card, with numbers as long as they get."""
    draw = random.Random(number)
    loads = [[cell, *(draw.randrange(60, 300_000) for _ in range(6))] for cell in range(8)]
    burdens = [[index, draw.randrange(100_000), draw.randrange(60, 3_000)] for index in range(10)]
    return {"seen": seen, "busy": draw.randrange(2_000_000), "state": 1, "since": seen, "loads": loads, "burdens": burdens}


def memory_of(count: int) -> Raw:
    draw = random.Random(7)
    names = [f"GPU-{draw.getrandbits(32):08x}-ab12-cd34-ef56-{draw.getrandbits(48):012x}" for _ in range(count)]
    return {"version": 1, "cards": {name: {"seen": 1_800_000_000, "busy": number} for number, name in enumerate(names)}}


def lines_of(packed: bytes) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(packed).splitlines()]


def packed(*lines: object) -> bytes:
    return gzip.compress("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines).encode())


VERSION = {"version": 1}


# -- shards -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2_000, 2_001, 9_000])
def test_what_is_packed_is_unpacked_as_it_was(count: int):
    memory = memory_of(count)
    shards = pack(memory)
    assert unpack(shards) == (memory, [])
    assert pack(memory) == shards


def test_no_shard_has_more_than_2000_cards():
    shards = pack(memory_of(9_000))
    assert max(len(lines_of(each)) - 1 for each in shards.values()) <= 2_000


def test_2000_cards_of_which_all_is_known_fit_into_a_config_map():
    shards = pack(
        {"version": 1, "cards": {f"GPU-{number:08x}-ab12-cd34-ef56-{number:012x}": entry(number) for number in range(2_000)}}
    )
    assert [len(each) < 900_000 for each in shards.values()] == [True]


def test_number_of_cards_is_bounded_and_those_seen_last_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pyscheduler.readers.cards.memory_shards._ALL_CARDS_MAX", 3)
    cards = {f"GPU-{number}": entry(seen=1_000 + number % 5) for number in range(10)}
    kept = unpack(pack({"version": 1, "cards": cards}))[0]["cards"]
    assert sorted(kept) == ["GPU-3", "GPU-4", "GPU-9"]


def test_shards_never_outnumber_the_names_that_the_service_has_rights_to(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pyscheduler.readers.cards.memory_shards._CARDS_MAX", 1)
    memory = memory_of(2_000)
    shards = pack(memory)
    assert len(shards) == SHARDS_MAX
    assert unpack(shards)[0] == memory


def test_card_that_changes_changes_its_shard_alone():
    memory = memory_of(5_000)
    before = pack(memory)
    memory["cards"][next(iter(memory["cards"]))]["busy"] += 1
    after = pack(memory)
    assert [name for name in after if after[name] != before[name]] != []
    assert len([name for name in after if after[name] != before[name]]) == 1


def test_capacity_takes_what_comes_back():
    Capacity().restore(unpack(pack(memory_of(100)))[0])


def test_shards_one_after_the_other_are_one_shard():
    shards = pack(memory_of(5_000))
    assert unpack({"file": b"".join(shards.values())}) == unpack(shards)


BAD_LINES = [
    ("{", "Expecting property name"),
    ("[]", "it is no card"),
    ('{"busy": 3}', "names no card"),
    ('{"card": ""}', "names no card"),
    ('{"card": 5, "busy": 3}', "names no card"),
    ('{"card": "GPU-x", "busy": "long"}', "GPU-x holds what is no whole number"),
    ('{"card": "GPU-x", "busy": NaN}', "GPU-x holds what is no whole number"),
    (f'{{"card": "GPU-x", "busy": {10**40}}}', "GPU-x holds what is no whole number"),
    ('{"card": "GPU-x", "state": 99}', "GPU-x has a state or faults that there are not"),
    ('{"card": "GPU-x", "found": -1}', "GPU-x has a state or faults that there are not"),
    ('{"card": "GPU-x", "loads": 5}', "GPU-x has loads of another form"),
    ('{"card": "GPU-x", "loads": [5]}', "GPU-x has loads of another form"),
    ('{"card": "GPU-x", "burdens": [[99, 1, 1]]}', "GPU-x has burdens of another form"),
    ('{"card": "GPU-x", "burdens": [[1, 1]]}', "GPU-x has burdens of another form"),
    ('{"card": "GPU-x", "busy": -3600}', "GPU-x holds a number below 0"),
    ('{"card": "GPU-x", "hold": -1}', "GPU-x holds a number below 0"),
    ('{"card": "GPU-x", "loads": [[0, 1, -50, 1, 50, 1, 50]]}', "GPU-x holds a number below 0"),
    ('{"card": "GPU-x", "burdens": [[1, 5, -30]]}', "GPU-x holds a number below 0"),
    ("[" * 100_000, "recursion"),
]


@pytest.mark.parametrize(("line", "says"), BAD_LINES, ids=[line[:40] for line, _ in BAD_LINES])
def test_line_that_is_wrong_is_told_and_costs_no_other(line: str, says: str):
    good = {"card": "GPU-1", **entry()}
    memory, problems = unpack({"some shard": packed(VERSION, line, good)})
    assert memory["cards"] == {"GPU-1": entry()}
    assert problems
    assert says in problems[0]
    assert problems[0].startswith("some shard: line 2 is left out: ")


def test_many_wrong_lines_are_told_in_few():
    _, problems = unpack({"some shard": packed(VERSION, *["{"] * 50)})
    assert len(problems) == 4
    assert problems[-1] == "some shard: 47 problems more like these"


def test_shard_that_is_cut_off_keeps_what_came_before():
    memory = memory_of(300)
    whole = pack(memory)[FIRST]
    found, problems = unpack({FIRST: whole[: len(whole) // 2]})
    assert 50 < len(found["cards"]) < 250
    assert found["cards"].items() <= memory["cards"].items()
    assert ["what follows cannot be unpacked" in problem for problem in problems] == [True]


@pytest.mark.parametrize("junk", [b"", b"no gzip", b"\x1f\x8b junk"])
def test_shard_that_is_junk_costs_no_other(junk: bytes):
    memory = memory_of(3)
    found, problems = unpack({"junk": junk, **pack(memory)})
    assert found == memory
    assert len(problems) == 1


def test_numbers_that_may_be_below_0_are_read():
    card = {"lately": -1000, "repaired": -62_135_596_800, "loads": [[0, -1, 50, -1, 50, -1, 50]], "burdens": [[1, -5, 30]]}
    assert unpack({FIRST: packed(VERSION, {"card": "GPU-1", **card})}) == ({**VERSION, "cards": {"GPU-1": card}}, [])


def test_lines_before_a_version_are_told():
    found, problems = unpack({FIRST: packed({"card": "GPU-1", **entry()}, VERSION, {"card": "GPU-2", **entry()})})
    assert list(found["cards"]) == ["GPU-2"]
    assert problems == [f"{FIRST}: line 1 is left out: no version stands before it"]


def test_shard_of_another_version_is_told_and_not_read():
    found, problems = unpack({FIRST: packed({"version": 2}, {"card": "GPU-1", **entry()})})
    assert found["cards"] == {}
    assert problems == [f"{FIRST}: line 1 is left out: its version is 2, this program reads 1, so its cards are too"]


def test_shard_that_grows_without_end_when_unpacked_is_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pyscheduler.readers.cards.memory_shards._TEXT_MAX", 1 << 20)
    _, problems = unpack({FIRST: gzip.compress(b'{"version":1}\n' * 100_000)})
    assert problems == [f"{FIRST}: what follows 1 MiB is left out: no shard is so large"]


def test_of_two_entries_of_a_card_the_one_seen_later_counts():
    old, new = ({"version": 1, "cards": {"GPU-1": entry(seen=seen)}} for seen in (1_000, 2_000))
    for order in ((old, new), (new, old)):
        shards = {str(index): pack(memory)[FIRST] for index, memory in enumerate(order)}
        assert unpack(shards)[0] == new


# -- where they are kept ----------------------------------------------------------------------------------------------


class Store:
    """Keeps ConfigMaps as the API server does; what is in `faults` is raised by the next requests of a verb."""

    def __init__(self) -> None:
        self.objects: dict[str, Raw] = {}
        self.faults: dict[str, list[Exception]] = {}
        self.did: list[str] = []
        self._version = 0

    def get(self, path: str, query: dict[str, str] | None = None) -> Raw:
        self._go("list" if path == PATH else "get", path)
        if path != PATH:
            return copy.deepcopy(self._found(path))
        assert query is not None
        names = sorted(name for name, raw in self.objects.items() if query["labelSelector"] in raw["metadata"].get("labels", {}))
        first = int(query.get("continue", "0"))
        size = int(query["limit"])
        more = {"continue": str(first + size)} if first + size < len(names) else {}
        return {"metadata": more, "items": [copy.deepcopy(self.objects[name]) for name in names[first : first + size]]}

    def post(self, path: str, body: Raw) -> None:
        name = body["metadata"]["name"]
        self._go("create", name)
        if name in self.objects:
            raise KubernetesError(f"{path} answered 409 (configmaps {name!r} already exists): retried", 409)
        self._put(name, body)

    def put(self, path: str, body: Raw) -> None:
        self._go("update", path)
        there = self._found(path)
        if body["metadata"].get("resourceVersion", there["metadata"]["resourceVersion"]) != there["metadata"]["resourceVersion"]:
            raise KubernetesError(f"{path} answered 409 (the object has been modified): retried", 409)
        self._put(body["metadata"]["name"], body)

    def delete(self, path: str) -> None:
        self._go("delete", path)
        self._found(path)
        del self.objects[path.removeprefix(f"{PATH}/")]

    def take(self) -> list[str]:
        """Return what was done since the last call."""
        did, self.did = self.did, []
        return did

    def _go(self, verb: str, what: str) -> None:
        self.did.append(f"{verb} {what.removeprefix(PATH).removeprefix('/')}".strip())
        if faults := self.faults.get(verb):
            raise faults.pop(0)

    def _found(self, path: str) -> Raw:
        name = path.removeprefix(f"{PATH}/")
        if name not in self.objects:
            raise KubernetesError(f"{path} answered 404 (configmaps {name!r} not found): retried", 404)
        return self.objects[name]

    def _put(self, name: str, body: Raw) -> None:
        self._version += 1
        self.objects[name] = copy.deepcopy(body)
        self.objects[name]["metadata"]["resourceVersion"] = str(self._version)


class Leader:
    def __init__(self) -> None:
        self.leads = True


class Setting:
    """A memory with what it needs. `pauses` are those that it made."""

    def __init__(self, store: Store | None = None, file: Path | None = None) -> None:
        self.store = store or Store()
        self.leader = Leader()
        self.pauses: list[float] = []
        config = Config(namespace="gpu", metrics=MetricsConfig(memory_file=str(file) if file else None))
        api, leadership = cast("ApiServer", self.store), cast("Leadership", self.leader)
        self.memory = CardMemory(api, leadership, config, structlog.get_logger(), self.pauses.append)

    def kept(self) -> Raw:
        """Return what another service reads."""
        found: Raw = unpack(Setting(self.store).memory.load())[0]["cards"]
        self.store.take()
        return found


SMALL = {"version": 1, "cards": {"GPU-1": entry(1)}}
LARGE = memory_of(5_000)


def away(text: str = "GET … failed: is the API server up and reachable?") -> KubernetesError:
    return KubernetesError(text)


def test_what_is_saved_is_there_for_the_next_service():
    setting = Setting()
    assert setting.memory.load() == {}
    setting.memory.save(pack(LARGE))
    assert len(setting.store.objects) == 4
    assert setting.kept() == LARGE["cards"]


def test_many_shards_are_read_in_pages():
    setting = Setting()
    setting.memory.load()
    setting.memory.save(
        {shard_name(index): pack({"version": 1, "cards": {f"GPU-{index}": entry()}})[FIRST] for index in range(25)}
    )
    assert len(setting.kept()) == 25


def test_config_map_is_ours_by_its_label_and_says_how_to_look_into_it():
    setting = Setting()
    setting.memory.load()
    setting.memory.save(pack(SMALL))
    raw = setting.store.objects[FIRST]
    assert raw["metadata"]["namespace"] == "gpu"
    assert raw["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "pyscheduler", LABEL: "true"}
    assert f"-n gpu {FIRST}" in raw["data"]["how-to-read"]
    assert lines_of(base64.b64decode(raw["binaryData"]["cards.jsonl.gz"])) == [VERSION, {"card": "GPU-1", **entry(1)}]


@pytest.mark.parametrize("binary", [None, {}, {"cards.jsonl.gz": "no base64!"}], ids=["removed", "empty", "no base64"])
def test_config_map_that_was_emptied_is_told_and_written_anew(binary: dict[str, str] | None):
    setting = Setting()
    setting.memory.load()
    setting.memory.save(pack(SMALL))
    setting.store.objects[FIRST]["binaryData"] = binary
    next_one = Setting(setting.store)
    assert unpack(next_one.memory.load())[1] == [f"{FIRST}: there is nothing in it: what was known of its cards is not read"]
    next_one.memory.save(pack(SMALL))
    assert setting.kept() == SMALL["cards"]


def test_only_what_has_changed_is_written():
    setting = Setting()
    setting.memory.load()
    memory = copy.deepcopy(LARGE)
    setting.memory.save(pack(memory))
    setting.store.take()
    setting.memory.save(pack(memory))
    assert setting.store.take() == []
    memory["cards"][next(iter(memory["cards"]))]["busy"] += 1
    setting.memory.save(pack(memory))
    assert [did.split()[0] for did in setting.store.take()] == ["update"]
    assert setting.kept() == memory["cards"]


def test_what_is_there_at_the_start_and_has_not_changed_is_not_written():
    first = Setting()
    first.memory.load()
    first.memory.save(pack(LARGE))
    second = Setting(first.store)
    second.memory.load()
    first.store.take()
    second.memory.save(pack(LARGE))
    assert first.store.take() == []


def test_service_that_stands_by_writes_nothing():
    setting = Setting()
    setting.memory.load()
    setting.leader.leads = False
    setting.memory.save(pack(SMALL))
    assert setting.store.objects == {}
    setting.leader.leads = True
    setting.memory.save(pack(SMALL))
    assert setting.kept() == SMALL["cards"]


def test_old_shards_are_deleted():
    setting = Setting()
    setting.memory.load()
    setting.memory.save(pack(LARGE))
    setting.store.take()
    setting.memory.save(pack(SMALL))
    assert sorted(setting.store.take()) == [f"delete {shard_name(index)}" for index in (1, 2, 3)] + [f"update {FIRST}"]
    assert setting.kept() == SMALL["cards"]


def test_old_shard_that_is_gone_already_is_no_failure():
    setting = Setting()
    setting.memory.load()
    setting.memory.save(pack(LARGE))
    del setting.store.objects[shard_name(2)]
    with capture_logs() as logs:
        setting.memory.save(pack(SMALL))
    assert logs == []
    assert list(setting.store.objects) == [FIRST]


def test_shard_that_was_deleted_is_written_anew():
    setting = Setting()
    setting.memory.load()
    setting.memory.save(pack(SMALL))
    setting.store.objects.clear()
    setting.memory.save(pack({"version": 1, "cards": {"GPU-1": entry(2)}}))
    assert setting.kept() == {"GPU-1": entry(2)}


def test_shard_that_another_leader_has_made_is_written_over():
    one, two = Setting(), Setting()
    two.store = one.store
    two.memory = Setting(one.store).memory
    one.memory.load()
    two.memory.load()
    one.memory.save(pack(SMALL))
    with capture_logs() as logs:
        two.memory.save(pack({"version": 1, "cards": {"GPU-1": entry(2)}}))
    assert logs == []
    assert one.kept() == {"GPU-1": entry(2)}


def test_config_map_of_somebody_else_is_left_alone_and_costs_no_other_shard():
    setting = Setting()
    foreign = {"metadata": {"name": FIRST, "resourceVersion": "1"}, "data": {"mine": "x"}}
    setting.store.objects[FIRST] = copy.deepcopy(foreign)
    setting.memory.load()
    with capture_logs() as logs:
        setting.memory.save(pack(LARGE))
    assert setting.store.objects[FIRST] == foreign
    assert len(setting.store.objects) == 4
    assert f"ConfigMap {FIRST} in gpu was made by somebody else: rename it" in logs[0]["error"]


def test_config_map_of_another_name_that_bears_the_label_is_neither_read_nor_deleted():
    setting = Setting()
    setting.memory.load()
    setting.memory.save(pack(SMALL))
    other = copy.deepcopy(setting.store.objects[FIRST])
    other["metadata"]["name"] = "my-copy"
    setting.store.objects["my-copy"] = other
    again = Setting(setting.store)
    assert list(again.memory.load()) == [FIRST]
    again.memory.save(pack({"version": 1, "cards": {}}))
    assert "my-copy" in setting.store.objects


@pytest.mark.parametrize(
    "data", [{}, {"binaryData": {"cards.jsonl.gz": "no base64!"}}, {"binaryData": None}, {"data": {"a": "b"}}]
)
def test_config_map_with_other_content_costs_no_other(data: Raw):
    setting = Setting()
    setting.memory.load()
    setting.memory.save(pack(LARGE))
    damaged = setting.store.objects[FIRST]
    for key in ("binaryData", "data"):
        damaged.pop(key)
    damaged.update(data)
    kept = setting.kept()
    assert 3_000 < len(kept) < 5_000
    again = Setting(setting.store)
    again.memory.load()
    again.memory.save(pack(LARGE))
    assert setting.kept() == LARGE["cards"]


# -- when it cannot be kept -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [away(), Gone("too old")])
def test_service_that_finds_the_server_away_at_its_start_tries_again(fault: Exception):
    first = Setting()
    first.memory.load()
    first.memory.save(pack(SMALL))
    second = Setting(first.store)
    first.store.faults["list"] = [fault, fault]
    assert unpack(second.memory.load())[0] == SMALL
    assert len(second.pauses) == 2


def test_nothing_is_written_before_what_was_there_has_been_read():
    first = Setting()
    first.memory.load()
    first.memory.save(pack({"version": 1, "cards": {"GPU-1": entry(1), "GPU-2": entry(2)}}))
    second = Setting(first.store)
    first.store.faults["list"] = [away() for _ in range(4)]
    with capture_logs() as logs:
        assert second.memory.load() == {}
        for _ in range(2):
            second.memory.save(pack({"version": 1, "cards": {"GPU-2": entry(3)}}))
        assert second.memory.late() is None
    assert [log["event"] for log in logs] == ["what was known of cards is not read", "what is known of cards is not saved"]
    assert "failed: is the API server up" in logs[1]["error"]
    assert first.kept() == {"GPU-1": entry(1), "GPU-2": entry(2)}
    late = second.memory.late()
    assert late is not None
    assert unpack(late)[0]["cards"] == {"GPU-1": entry(1), "GPU-2": entry(2)}
    assert second.memory.late() is None, "it is given out once"
    second.memory.save(pack({"version": 1, "cards": {"GPU-2": entry(4)}}))
    assert first.kept() == {"GPU-2": entry(4)}


def test_memory_that_was_read_is_not_asked_for_again_also_if_there_is_none():
    setting = Setting()
    assert setting.memory.load() == {}
    setting.store.take()
    assert setting.memory.late() is None
    assert setting.store.take() == []


def test_second_judge_that_begins_without_the_memory_writes_nothing_either():
    setting = Setting()
    setting.memory.load()
    setting.memory.save(pack(SMALL))
    setting.store.faults["list"] = [away() for _ in range(3)]
    assert setting.memory.load() == {}
    setting.memory.save(pack({"version": 1, "cards": {}}))
    assert setting.kept() == SMALL["cards"]


@pytest.mark.parametrize("verb", ["create", "update", "delete"])
def test_write_that_fails_is_told_once_and_made_up_for_by_the_next(verb: str):
    setting = Setting()
    setting.memory.load()
    setting.memory.save(pack(LARGE))
    wanted = SMALL
    if verb == "create":
        setting.store.objects.clear()
        wanted = {"version": 1, "cards": {name: entry(5) for name in LARGE["cards"]}}
    setting.store.faults[verb] = [away(), away()]
    with capture_logs() as logs:
        for _ in range(3):
            setting.memory.save(pack(wanted))
    assert [log["log_level"] for log in logs] == ["warning", "info"]
    assert "is the API server up and reachable?" in logs[0]["error"]
    assert setting.kept() == wanted["cards"]


def test_conflict_is_made_up_for_by_the_next():
    setting = Setting()
    setting.memory.load()
    setting.memory.save(pack(SMALL))
    setting.store.faults["update"] = [away(f"{PATH}/{FIRST} answered 409 (the object has been modified): retried")]
    later = {"version": 1, "cards": {"GPU-1": entry(9)}}
    with capture_logs() as logs:
        setting.memory.save(pack(later))
        setting.memory.save(pack(later))
    assert [log["log_level"] for log in logs] == ["warning", "info"]
    assert setting.kept() == later["cards"]


# -- a file -----------------------------------------------------------------------------------------------------------


def test_file_keeps_what_config_maps_do_and_no_request_is_made(tmp_path: Path):
    path = tmp_path / "cards.gz"
    first = Setting(file=path)
    assert first.memory.load() == {}
    first.memory.save(pack(LARGE))
    second = Setting(file=path)
    assert unpack(second.memory.load()) == (LARGE, [])
    assert (first.store.did, second.store.did) == ([], [])
    assert [each.name for each in tmp_path.iterdir()] == ["cards.gz"]


def test_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path):
    path = tmp_path / "cards.gz"
    setting = Setting(file=path)
    setting.memory.load()
    setting.memory.save(pack(SMALL))
    (tmp_path / "cards.gz.new").mkdir()
    with capture_logs() as logs:
        setting.memory.save(pack(LARGE))
    assert str(path) in logs[0]["error"]
    assert "let the service read and write it" in logs[0]["error"]
    assert unpack(Setting(file=path).memory.load())[0] == SMALL


def test_file_that_cannot_be_read_is_told_and_not_written_over(tmp_path: Path):
    path = tmp_path / "cards.gz"
    path.mkdir()
    setting = Setting(file=path)
    with capture_logs() as logs:
        assert setting.memory.load() == {}
        setting.memory.save(pack(SMALL))
    assert [log["log_level"] for log in logs] == ["warning", "warning"]
    assert setting.pauses == []
    assert path.is_dir()


def test_service_that_stands_by_leaves_the_file_alone(tmp_path: Path):
    setting = Setting(file=tmp_path / "cards.gz")
    setting.memory.load()
    setting.leader.leads = False
    setting.memory.save(pack(SMALL))
    assert list(tmp_path.iterdir()) == []
