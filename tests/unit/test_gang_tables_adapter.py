"""Tables of groups in ConfigMaps: what stands there, and that they are written once, by the leader, and over nobody's head."""

from __future__ import annotations

import copy
import json
import queue
import re
import threading
from dataclasses import replace
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from pyscheduler.adapters.api import ApiServer
from pyscheduler.adapters.gang_config_map import BYTES_MAX, config_map, name_of
from pyscheduler.adapters.gang_tables import GangTables
from pyscheduler.core.gangs.membership import GangKey, OwnerRef
from pyscheduler.core.gangs.table import GangTable, Row, Tables
from pyscheduler.errors import KubernetesError

WAIT_S = 20.0
JOB = OwnerRef("batch/v1", "Job", "train", "uid-of-job")
PATH = "/api/v1/namespaces/team/configmaps"


class Store:
    """Keeps ConfigMaps as the API server does; while `fault` is set it answers with that. `wrote` is what it took, in order."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.fault = ""
        self.tried: list[str] = []
        self.wrote: queue.Queue[tuple[str, str]] = queue.Queue()
        self._version = 0

    def post(self, path: str, body: dict[str, Any]) -> None:
        name = body["metadata"]["name"]
        self._refuse("create", name)
        if f"{path}/{name}" in self.objects:
            raise KubernetesError(f"{path} answered 409 (configmaps {name!r} already exists): retried", 409)
        self._put("create", f"{path}/{name}", body)

    def put(self, path: str, body: dict[str, Any]) -> None:
        self._refuse("update", path)
        if body["metadata"]["resourceVersion"] != self.objects[path]["metadata"]["resourceVersion"]:
            raise KubernetesError(f"{path} answered 409 (the object has been modified): retried", 409)
        self._put("update", path, body)

    def get(self, path: str) -> dict[str, Any]:
        self._refuse("get", path)
        if path not in self.objects:
            raise KubernetesError(f"{path} answered 404: retried", 404)
        return copy.deepcopy(self.objects[path])

    def data(self, name: str = "train-ranks") -> dict[str, str]:
        return dict(self.objects[f"{PATH}/{name}"]["data"])

    def writes(self) -> list[str]:
        """Return the verbs of the writes since the last call."""
        return [self.wrote.get_nowait()[0] for _ in range(self.wrote.qsize())]

    def _refuse(self, verb: str, what: str) -> None:
        self.tried.append(verb)
        if self.fault:
            raise KubernetesError(self.fault)

    def _put(self, verb: str, path: str, body: dict[str, Any]) -> None:
        self._version += 1
        self.objects[path] = copy.deepcopy(body)
        self.objects[path]["metadata"]["resourceVersion"] = str(self._version)
        self.wrote.put((verb, path))


class Given:
    """Gives out the tables that a test lays down, in place of the core's."""

    def __init__(self) -> None:
        self.tables: list[GangTable] = []
        self.all: list[GangTable] = []
        self.live = True

    def take(self) -> list[GangTable]:
        taken, self.tables = self.tables, []
        return taken

    def renew(self) -> None:
        self.tables = [*self.all, *self.tables]

    def is_live(self, gang: GangKey) -> bool:
        return self.live


class Writer(GangTables):
    """A writer whose clock stands at `now`; a test looks in place of its thread."""

    def __init__(self, api: object, given: Given) -> None:
        self.now = 100.0
        self.given = given
        tables = cast("Tables", given)
        super().__init__(cast("ApiServer", api), tables, threading.Lock(), lambda: self.now, structlog.get_logger())

    def write(self, *tables: GangTable) -> None:
        self.given.tables += tables
        self.look()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def writer(store: Store) -> Writer:
    made = Writer(store, Given())
    made.lead(True)
    return made


def row(rank: int, pod: str = "", gpus: int = 8) -> Row:
    handles = tuple(f"GPU-{rank:08x}-ab12-cd34-ef56-{index:012x}" for index in range(gpus))
    name = pod or f"train-{rank}-x7k2p"
    return Row(rank, name, f"train-{rank}.train", f"node-{rank:05}", handles, "NV18")


def table(*rows: Row, owner: OwnerRef = JOB, name: str = "train", level: str | None = "leaf") -> GangTable:
    return GangTable(GangKey("team", name, "pyscheduler"), owner, level, rows)


# -- what stands there ------------------------------------------------------------------------------------------------


def test_config_map_holds_ranks_hostfile_and_size(store: Store, writer: Writer):
    writer.write(table(row(0, gpus=2), row(1, gpus=1)))
    data = store.data()
    assert json.loads(data["ranks.json"]) == [
        {
            "rank": 0,
            "pod": "train-0-x7k2p",
            "host": "train-0.train",
            "node": "node-00000",
            "bottleneck": "NV18",
            "gpus": ["GPU-00000000-ab12-cd34-ef56-000000000000", "GPU-00000000-ab12-cd34-ef56-000000000001"],
        },
        {
            "rank": 1,
            "pod": "train-1-x7k2p",
            "host": "train-1.train",
            "node": "node-00001",
            "bottleneck": "NV18",
            "gpus": ["GPU-00000001-ab12-cd34-ef56-000000000000"],
        },
    ]
    assert data["hostfile"] == "train-0.train slots=2\ntrain-1.train slots=1\n"
    assert (data["world_size"], data["level"]) == ("2", "leaf")


def test_config_map_is_owned_and_says_whose_it_is(store: Store, writer: Writer):
    writer.write(table(row(0)))
    meta = store.objects[f"{PATH}/train-ranks"]["metadata"]
    assert meta["ownerReferences"] == [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-of-job"}]
    assert meta["labels"] == {"app.kubernetes.io/managed-by": "pyscheduler"}
    assert meta["annotations"] == {"pyscheduler.io/group": "train"}


def test_level_of_a_group_that_no_domain_holds_is_the_cluster():
    made = config_map(table(row(0), level=None))
    assert made is not None
    assert made["data"]["level"] == "cluster"


@pytest.mark.parametrize(
    ("group", "name"),
    [("train", "train-ranks"), ("vllm-1", "vllm-1-ranks"), ("a.b", "a.b-ranks"), ("a" * 247, "a" * 247 + "-ranks")],
)
def test_name_is_that_of_the_group(group: str, name: str):
    assert name_of(GangKey("team", group, "x")) == name


@pytest.mark.parametrize("group", ["Team A/train", "a_b", "-x", "a..b", "x" * 300, "\u00e9t\u00e9", "\u8a13\u7df4", "_"])
def test_group_whose_name_is_none_in_dns_has_one_that_is_and_that_no_other_has(group: str):
    name = name_of(GangKey("team", group, "x"))
    labels = name.split(".")
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", label) for label in labels)
    assert (len(name) <= 253, name.endswith("-ranks")) == (True, True)
    assert name != name_of(GangKey("team", f"{group} ", "x"))


def size(made: dict[str, Any]) -> int:
    return sum(len(value) for value in made["data"].values())


def test_512_pods_of_8_gpus_fit():
    made = config_map(table(*(row(rank) for rank in range(512))))
    assert made is not None
    assert size(made) < BYTES_MAX
    assert len(json.loads(made["data"]["ranks.json"])[511]["gpus"]) == 8


def test_table_that_is_too_large_is_written_without_gpus_and_says_so():
    made = config_map(table(*(row(rank) for rank in range(3000))))
    assert made is not None
    assert size(made) < BYTES_MAX
    assert "gpus" not in json.loads(made["data"]["ranks.json"])[0]
    assert "pyscheduler.io/gpus" in made["data"]["left-out"]
    assert "train-2999.train slots=8\n" in made["data"]["hostfile"]


def test_table_that_is_too_large_in_any_form_is_told_of_and_not_tried_again(store: Store, writer: Writer):
    with capture_logs() as logs:
        writer.write(table(*(row(rank) for rank in range(12_000))))
        writer.now += 60.0
        writer.look()
    assert (store.tried, [line["group"] for line in logs]) == ([], ["team/train"])


# -- when -------------------------------------------------------------------------------------------------------------


def test_standby_neither_looks_nor_writes(store: Store):
    given = Given()
    writer = Writer(store, given)
    given.tables = [table(row(0))]
    writer.look()
    writer.lead(False)
    writer.look()
    assert (store.tried, len(given.tables)) == ([], 1)


def test_former_leader_writes_nothing_that_it_still_has(store: Store, writer: Writer):
    writer.write(table(row(0)))
    store.writes()
    writer.write(table(row(0), row(1)))
    writer.lead(False)
    writer.now += 60.0
    writer.look()
    assert store.writes() == []


def test_who_takes_over_writes_what_differs(store: Store, writer: Writer):
    same, grown, lost = (table(row(0), name=name) for name in ("same", "grown", "lost"))
    writer.write(same, grown)
    store.writes()
    heir = Writer(store, Given())
    heir.given.all = [same, replace(grown, rows=(row(0), row(1))), lost]
    heir.lead(True)
    heir.look()
    assert store.writes() == ["update", "create"]
    assert (store.data("grown-ranks")["world_size"], store.data("lost-ranks")["world_size"]) == ("2", "1")


def test_two_writes_for_one_group_are_a_second_apart_and_the_last_counts(store: Store, writer: Writer):
    writer.write(table(row(0)))
    for count in (2, 3, 4):
        writer.now += 0.2
        writer.write(table(*(row(rank) for rank in range(count))))
    assert store.writes() == ["create"]
    writer.write(table(row(0), name="other"))
    assert store.writes() == ["create"]
    writer.now += 0.5
    writer.look()
    assert (store.writes(), store.data()["world_size"]) == (["update"], "4")


# -- over what is there -----------------------------------------------------------------------------------------------


def test_good_table_is_not_replaced_by_one_that_knows_less(store: Store, writer: Writer):
    writer.write(table(row(0), row(1)))
    writer.now += 2.0
    writer.write(table(row(0)))
    assert (store.writes(), store.data()["world_size"]) == (["create"], "2")


def test_member_in_the_place_of_another_is_written(store: Store, writer: Writer):
    writer.write(table(row(0), row(1)))
    writer.now += 2.0
    writer.write(table(row(0), row(1, "train-1-new")))
    assert store.writes() == ["create", "update"]
    assert json.loads(store.data()["ranks.json"])[1]["pod"] == "train-1-new"


def test_table_of_an_earlier_job_of_the_same_name_is_replaced(store: Store, writer: Writer):
    writer.write(table(row(0), row(1)))
    writer.now += 2.0
    writer.write(table(row(0), owner=replace(JOB, uid="another")))
    assert (store.writes(), store.data()["world_size"]) == (["create", "update"], "1")


@pytest.mark.parametrize("data", [None, {}, {"ranks.json": "["}, {"ranks.json": "3"}, {"ranks.json": "[" * 20_000}])
def test_table_that_somebody_spoilt_is_written_anew(store: Store, writer: Writer, data: object):
    writer.write(table(row(0)))
    store.objects[f"{PATH}/train-ranks"]["data"] = data
    writer.now += 2.0
    writer.write(table(row(0)))
    assert store.data()["world_size"] == "1"


@pytest.mark.parametrize("labels", [None, {}, {"app.kubernetes.io/managed-by": "helm"}])
def test_config_map_of_somebody_else_is_left_alone(store: Store, writer: Writer, labels: object):
    theirs = {"metadata": {"name": "train-ranks", "labels": labels, "resourceVersion": "7"}, "data": {"mine": "1"}}
    store.objects[f"{PATH}/train-ranks"] = copy.deepcopy(theirs)
    with capture_logs() as logs:
        writer.write(table(row(0)))
    assert store.objects[f"{PATH}/train-ranks"] == theirs
    assert "train-ranks" in logs[0]["error"]


# -- failures ---------------------------------------------------------------------------------------------------------


def test_failed_write_is_tried_again_ever_more_seldom_and_told_once(store: Store, writer: Writer):
    store.fault = "configmaps is forbidden: grant the rights of deploy/rbac"
    tries = []
    with capture_logs() as logs:
        writer.write(table(row(0)))
        for second in range(1, 101):
            before = len(store.tried)
            writer.now += 1.0
            writer.look()
            tries += [second] if len(store.tried) > before else []
    assert (tries, len(logs)) == ([1, 3, 7, 15, 31, 61, 91], 1)
    store.fault = ""
    writer.now += 30.0
    writer.look()
    assert store.writes() == ["create"]


def test_newer_table_takes_the_place_of_one_that_could_not_be_written(store: Store, writer: Writer):
    store.fault = "away"
    writer.write(table(row(0)))
    store.fault = ""
    writer.now += 5.0
    writer.write(table(row(0), row(1)))
    assert (store.writes(), store.data()["world_size"]) == (["create"], "2")


def test_table_of_a_group_that_has_ended_is_not_tried_again(store: Store, writer: Writer):
    store.fault = "away"
    writer.write(table(row(0)))
    writer.given.live = False
    store.fault = ""
    writer.now += 60.0
    writer.look()
    assert store.writes() == []


def test_failure_of_one_table_does_not_hold_up_the_others(store: Store, writer: Writer):
    broken = replace(table(row(0), name="broken"), owner=cast("OwnerRef", None))
    with capture_logs() as logs:
        writer.write(broken, table(row(0)))
    assert (store.writes(), [line["group"] for line in logs]) == (["create"], ["team/broken"])


def test_table_that_was_changed_meanwhile_is_read_again(store: Store, writer: Writer):
    writer.write(table(row(0)))
    writer.now += 2.0
    read = store.get

    def changes_afterwards(path: str) -> dict[str, Any]:
        found = read(path)
        store.objects[f"{PATH}/train-ranks"]["metadata"]["resourceVersion"] = "999"
        return found

    store.get = changes_afterwards  # type: ignore[method-assign]
    writer.write(table(row(0), row(1)))
    store.get = read  # type: ignore[method-assign]
    assert store.writes() == ["create"]
    writer.now += 2.0
    writer.look()
    assert (store.writes(), store.data()["world_size"]) == (["update"], "2")


def test_thread_writes_what_it_finds_and_ends(store: Store):
    writer = Writer(store, Given())
    writer.given.tables = [table(row(0))]
    writer.lead(True)
    writer.start()
    assert store.wrote.get(timeout=WAIT_S) == ("create", f"{PATH}/train-ranks")
    writer.stop()
    writer._thread.join(WAIT_S)
    assert not writer._thread.is_alive()
