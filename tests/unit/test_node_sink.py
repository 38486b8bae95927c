"""What watches show of nodes reaches the cluster whole, at once and once, whatever is being built or missing meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
import structlog

from pyscheduler.adapters.cluster import NodeSink
from pyscheduler.adapters.machines import Machines
from pyscheduler.adapters.shared_objects import ClassSink, FabricSink
from pyscheduler.adapters.tables import Tables
from pyscheduler.adapters.worker import Worker
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.machine.classify import class_of
from pyscheduler.core.machine.device_class import DeviceClass, class_hash
from pyscheduler.core.machine.device_table import MAX_GPUS, DeviceTable
from pyscheduler.core.machine.document import NodeDocument
from pyscheduler.core.machine.weights import Weights
from pyscheduler.core.model import NodeFacts
from pyscheduler.core.node import NodeState
from pyscheduler.readers import class_document, node_document
from pyscheduler.readers.cluster_objects import reader_for
from pyscheduler.readers.fabric.rules import FabricConfig
from pyscheduler.readers.objects import TOPOLOGY, ObjectReader

GPU = "nvidia.com/gpu"
WAIT_S = 20.0


class Shelf:
    """Tables that a test puts there when it likes: in place of those that a worker builds."""

    def __init__(self) -> None:
        self.there: dict[DeviceClass, DeviceTable | str] = {}
        self.asked: list[DeviceClass] = []
        self.on_find: Callable[[], None] = lambda: None

    def find(self, kind: DeviceClass) -> DeviceTable | str | None:
        self.asked.append(kind)
        self.on_find()
        return self.there.get(kind)

    def build_all(self) -> None:
        """Put there all that was asked for."""
        for kind in self.asked:
            self.there.setdefault(kind, DeviceTable.build(kind))


class Setting:
    """A sink with what it needs, and what it told."""

    def __init__(self, tables: Tables | None = None) -> None:
        self.shelf = Shelf()
        self.cluster = Cluster(epoch=1, scheduler_name="ours")
        self.lock = threading.Lock()
        self.machines = Machines(tables or cast("Tables", self.shelf), Weights(), lambda: 0.0)
        self.told: list[tuple[str, tuple[str, ...], str]] = []
        self.reader = ObjectReader((GPU,))
        self.sink = NodeSink(self.cluster, self.lock, lambda: 0.0, lambda: self.reader, self.machines, self._tell)

    def _tell(self, facts: NodeFacts, uid: str) -> None:
        # Whoever is told may take long: decisions must not wait for it.
        assert not self.lock.locked()
        self.told.append((facts.name, tuple(finding.code for finding in facts.findings), uid))

    def list(self, *nodes: Mapping[str, Any]) -> None:
        """Show a full list."""
        self.sink.replace([self.reader.node(raw) for raw in nodes])

    def state(self, name: str) -> NodeState | None:
        """Return what the cluster knows of a node; None if it knows no such node."""
        index = self.cluster.table.index_of(name)
        state = None if index is None else self.cluster.state(index)
        return state if state and state.present else None

    def links(self, name: str) -> str | None:
        """Return the link of the first pair of GPUs as decisions see it; None if they see none."""
        state = self.state(name)
        machine = state.facts.machine if state else None
        return str(machine.table.device_class.links[0]) if machine else None


@pytest.fixture
def setting() -> Setting:
    return Setting()


def document(link: str = "NV2", gpus: int = 2, model: str = "Card", sick: Iterable[int] = ()) -> dict[str, Any]:
    """Return a node document in which all pairs are linked alike."""
    listed = [{"id": f"G{i}", "uuid": f"GPU-{i}", "model": model, "numa": 0, "healthy": i not in sick} for i in range(gpus)]
    links = [{"a": f"G{a}", "b": f"G{b}", "type": link} for a in range(gpus) for b in range(a + 1, gpus)]
    return {"version": 1, "kind": "node", "gpus": listed, "links": links}


def node(name: str, content: Mapping[str, Any] | str | None, gpus: int = 2) -> dict[str, Any]:
    """Return a Node object."""
    text = content if isinstance(content, str) else json.dumps(content)
    annotations = {} if content is None else {TOPOLOGY: text}
    amounts = {GPU: str(gpus)}
    meta = {"name": name, "uid": f"uid-of-{name}", "annotations": annotations}
    return {"metadata": meta, "status": {"capacity": amounts, "allocatable": amounts}}


def by_hash(content: Mapping[str, Any]) -> tuple[str, DeviceClass, dict[str, Any]]:
    """Return the class of a document, its hash, and what the document is when the class stands elsewhere."""
    whole = node_document.of_json(content)
    shared = class_of(whole)
    named = replace(whole, class_hash=class_hash(shared))
    return class_hash(shared), shared, json.loads(node_document.dump(named, shared=True))


# What nodes say of their cards


def test_what_nodes_say_of_their_cards_is_kept_while_they_say_it(setting: Setting) -> None:
    def says(name: str, health: str) -> dict[str, Any]:
        raw = node(name, document())
        raw["metadata"]["labels"] = {"autopilot.ibm.com/gpuhealth": health}
        return raw

    setting.list(says("a", "EVICT"), says("b", "WARN"), says("c", "PASS"))
    values = {name: opinion.every and opinion.every.value for name, opinion in setting.sink.opinions.current().items()}
    assert values == {"a": 0.0, "b": 0.5}
    setting.sink.changed(says("c", "EVICT"))
    setting.sink.changed(says("b", "PASS"))
    assert set(setting.sink.opinions.current()) == {"a", "c"}
    setting.sink.retry()
    setting.sink.gone(says("c", "EVICT"))
    assert set(setting.sink.opinions.current()) == {"a"}
    setting.list(says("b", "PASS"))
    assert setting.sink.opinions.current() == {}


# By what else nodes are known


def test_addresses_of_nodes_are_known_while_they_have_them(setting: Setting) -> None:
    def at(name: str, *addresses: str) -> dict[str, Any]:
        raw = node(name, document())
        raw["status"]["addresses"] = [{"type": "InternalIP", "address": address} for address in addresses]
        return raw

    def known() -> dict[str, str]:
        return {address: name for address, name in setting.sink.addresses.names().items() if address != name}

    setting.list(at("a", "10.0.0.1", "fd00::1"), at("b", "10.0.0.2"), at("c"))
    assert known() == {"10.0.0.1": "a", "fd00::1": "a", "10.0.0.2": "b"}
    assert {"a", "b", "c"} <= setting.sink.addresses.names().keys()
    setting.sink.changed(at("c", "10.0.0.2", "10.0.0.3"))
    assert known() == {"10.0.0.1": "a", "fd00::1": "a", "10.0.0.2": "", "10.0.0.3": "c"}, "what two nodes have is of neither"
    setting.sink.gone(at("b"))
    assert known()["10.0.0.2"] == "c"
    setting.list(at("b", "a"))
    assert setting.sink.addresses.names() == {"a": "b", "b": "b"}
    setting.list(at("b", "a"), at("a"))
    assert setting.sink.addresses.names() == {"a": "a", "b": "b"}, "a node has its own name"


# Tables that are being built


def test_new_node_waits_for_its_table_and_is_known_when_it_is_there(setting: Setting) -> None:
    setting.sink.changed(node("a", document()))
    assert setting.state("a") is None
    setting.sink.retry()
    assert setting.state("a") is None
    setting.shelf.build_all()
    setting.sink.retry()
    assert setting.links("a") == "NV2"


def test_known_node_goes_on_with_the_links_that_it_had_and_with_its_new_health(setting: Setting) -> None:
    setting.sink.changed(node("a", document("NV2")))
    setting.shelf.build_all()
    setting.sink.retry()
    setting.sink.changed(node("a", document("SYS", sick=[1])))
    state = setting.state("a")
    assert state is not None
    assert (setting.links("a"), state.free_mask) == ("NV2", 0b01)
    setting.shelf.build_all()
    setting.sink.retry()
    assert setting.links("a") == "SYS"


def test_known_node_with_another_number_of_gpus_takes_no_pod_until_its_table_is_there(setting: Setting) -> None:
    setting.sink.changed(node("a", document(gpus=2)))
    setting.shelf.build_all()
    setting.sink.retry()
    setting.sink.changed(node("a", document(gpus=3), gpus=3))
    before = setting.state("a")
    assert before is not None
    assert before.free == 0
    setting.shelf.build_all()
    setting.sink.retry()
    after = setting.state("a")
    assert after is not None
    assert after.free == 3


@pytest.mark.parametrize("known_before", [False, True])
def test_node_whose_links_cannot_be_judged_is_placed_by_count_and_told_once(setting: Setting, known_before: bool) -> None:
    if known_before:
        setting.sink.changed(node("a", document("SYS")))
        setting.shelf.build_all()
        setting.sink.retry()
    raw = node("a", document("NV2"))
    setting.sink.changed(raw)
    setting.shelf.there[setting.shelf.asked[-1]] = "its links trip a bug"
    for _ in range(3):
        setting.sink.retry()
        setting.sink.changed(raw)
    state = setting.state("a")
    assert state is not None
    assert (state.count_only, state.free) == (True, 2)
    assert setting.told == [("a", ("links-not-judged",), "uid-of-a")]
    assert "its links trip a bug; its GPUs are given out by number only" in state.facts.findings[0].message


def test_machine_of_more_gpus_than_can_be_judged_is_placed_by_count_and_told_once() -> None:
    setting = Setting(Tables(cast("Worker", None), structlog.get_logger()))
    gpus = MAX_GPUS + 1
    raw = node("big", document(gpus=gpus), gpus)
    for _ in range(3):
        setting.sink.changed(raw)
    state = setting.state("big")
    assert state is not None
    assert (state.count_only, state.free) == (True, gpus)
    assert setting.told == [("big", ("links-not-judged",), "uid-of-big")]


def test_node_that_is_deleted_while_its_table_is_built_does_not_come_back(setting: Setting) -> None:
    raw = node("a", document())
    setting.sink.changed(raw)
    setting.sink.gone(raw)
    setting.shelf.build_all()
    setting.sink.retry()
    assert setting.state("a") is None


def test_node_that_a_new_list_lacks_does_not_come_back(setting: Setting) -> None:
    setting.list(node("a", document("NV2")), node("b", document("SYS")))
    setting.list(node("b", document("SYS")))
    setting.shelf.build_all()
    setting.sink.retry()
    assert setting.state("a") is None
    assert setting.links("b") == "SYS"


def test_node_that_comes_back_under_its_name_has_nothing_of_the_old_one(setting: Setting) -> None:
    """Not its links, and not that its findings were told."""
    setting.list(node("a", document("NV2")), node("broken", "{"))
    setting.shelf.build_all()
    setting.sink.retry()
    setting.list()
    setting.list(node("a", document("NV4")), node("broken", "{"))
    assert setting.state("a") is None
    assert [name for name, _, _ in setting.told] == ["broken", "broken"]


def test_list_tells_nodes_at_once_though_tables_are_lacking(setting: Setting) -> None:
    """A watch that waited for tables would be blind to the health of all other nodes."""
    setting.list(node("a", document("NV2")), node("plain", None))
    assert setting.state("plain") is not None
    assert setting.state("a") is None
    setting.sink.changed(node("plain", None, gpus=1))
    state = setting.state("plain")
    assert state is not None
    assert state.free == 1


def test_node_without_a_document_any_more_is_placed_by_count(setting: Setting) -> None:
    setting.sink.changed(node("a", document()))
    setting.shelf.build_all()
    setting.sink.retry()
    setting.sink.changed(node("a", None))
    state = setting.state("a")
    assert state is not None
    assert state.count_only
    # And its links are not those that it had when it says others.
    setting.sink.changed(node("a", document("SYS")))
    assert setting.links("a") is None


# Shared classes


def test_class_that_comes_late_makes_the_nodes_whole_that_lacked_it(setting: Setting) -> None:
    name, shared, content = by_hash(document("NV4"))
    setting.list(node("a", content))
    state = setting.state("a")
    assert state is not None
    assert (state.count_only, state.free) == (True, 2)
    assert setting.told == [("a", ("class-unknown",), "")]
    setting.sink.share({name: shared})
    setting.shelf.build_all()
    setting.sink.retry()
    assert setting.links("a") == "NV4"
    state = setting.state("a")
    assert state is not None
    assert (state.facts.findings, state.facts.machine and state.facts.machine.uuids) == ((), ("GPU-0", "GPU-1"))
    assert len(setting.told) == 1


def test_node_that_lacks_its_class_is_told_once_however_often_it_is_tried(setting: Setting) -> None:
    _, _, content = by_hash(document())
    raw = node("a", content)
    setting.sink.changed(raw)
    setting.sink.share({})
    setting.sink.retry()
    setting.sink.changed(raw)
    assert setting.told == [("a", ("class-unknown",), "uid-of-a")]


def test_class_of_another_number_of_gpus_is_told(setting: Setting) -> None:
    name, shared, content = by_hash(document(gpus=3))
    setting.sink.share({name: shared})
    setting.sink.changed(node("a", {**content, "gpus": content["gpus"][:2]}))
    assert setting.told == [("a", ("class-differs",), "uid-of-a")]


def test_class_stays_known_when_its_config_map_is_deleted_and_a_false_one_is_left_out() -> None:
    _, shared, _ = by_hash(document("NV4"))
    given: list[set[str]] = []
    sink = ClassSink(lambda classes: given.append(set(classes)), structlog.get_logger())
    config_map = class_document.config_map(shared, "here")
    false = {**config_map, "data": {"class.json": config_map["data"]["class.json"].replace("NV4", "NV6")}}
    sink.replace([false])
    sink.changed(config_map)
    sink.gone(config_map)
    sink.replace([])
    assert given == [set(), {class_hash(shared)}, {class_hash(shared)}]
    assert sink.version == 4


# What is wrong


def test_bug_in_judging_one_node_harms_no_other(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    def trips(content: NodeDocument) -> DeviceClass:
        if content.gpus[0].model == "poison":
            raise IndexError("no such pair")
        return class_of(content)

    monkeypatch.setattr("pyscheduler.adapters.machines.class_of", trips)
    setting.list(node("a", document(model="poison")), node("b", document()))
    setting.shelf.build_all()
    setting.sink.retry()
    state = setting.state("a")
    assert state is not None
    assert state.count_only
    assert "please report it" in state.facts.findings[0].message
    assert setting.links("b") == "NV2"


def test_findings_are_told_when_they_change_and_counted(setting: Setting) -> None:
    for content in ("{", "{", "[]", None, "{"):
        setting.sink.changed(node("a", content))
    assert [codes for _, codes, _ in setting.told] == [("document-unusable",)] * 3
    # Those that went count, too.
    assert setting.sink.changes == 4


# Several threads


def test_hundred_new_classes_of_a_list_become_known_while_the_watch_goes_on() -> None:
    tables = Tables(cast("Worker", _HereAndNow()), structlog.get_logger())
    setting = Setting(tables)
    tables.built = setting.sink.retry
    tables.start()
    try:
        setting.list(*(node(f"n{i}", document(model=f"Card {i}")) for i in range(100)))
        for i in range(100):
            setting.sink.changed(node(f"n{i}", document(model=f"Card {i}", sick=[0])))
        assert tables.wait(WAIT_S)
        setting.sink.retry()
    finally:
        tables.stop()
    states = [setting.state(f"n{i}") for i in range(100)]
    assert [state and state.free_mask for state in states] == [0b10] * 100
    assert {state and state.facts.machine and state.facts.machine.table.device_class.models[0] for state in states} == {
        f"Card {i}" for i in range(100)
    }


def test_node_that_is_taken_again_does_not_overtake_what_the_watch_tells(setting: Setting) -> None:
    inside, go = threading.Event(), threading.Event()

    def hold() -> None:
        if threading.current_thread().name == "builder":
            inside.set()
            assert go.wait(WAIT_S)

    setting.sink.changed(node("a", document()))
    setting.shelf.build_all()
    setting.shelf.on_find = hold
    builder = threading.Thread(target=setting.sink.retry, name="builder")
    watch = threading.Thread(target=setting.sink.changed, args=(node("a", document(sick=[0])),))
    builder.start()
    assert inside.wait(WAIT_S)
    watch.start()
    watch.join(0.1)
    go.set()
    for thread in (builder, watch):
        thread.join(WAIT_S)
    state = setting.state("a")
    assert state is not None
    assert state.free_mask == 0b10


def test_what_the_watch_told_last_stands_whoever_else_takes_nodes_again(setting: Setting) -> None:
    _, shared, content = by_hash(document("NV8", model="shared"))
    name = class_hash(shared)
    over = threading.Event()
    failures: list[Exception] = []

    def again(step: int) -> None:
        try:
            while not over.is_set():
                setting.shelf.build_all()
                setting.sink.retry()
                setting.sink.share({name: shared} if step else {})
        except Exception as cause:  # noqa: BLE001  in another thread nobody would see it
            failures.append(cause)

    others = [threading.Thread(target=again, args=(step,)) for step in (0, 1)]
    for thread in others:
        thread.start()
    for i in range(60):
        setting.sink.changed(node("a", document("NV2" if i % 2 else "NV4", model=f"Card {i % 7}", sick=[i % 2])))
        setting.sink.changed(node("b", content if i % 2 else document("SYS", sick=[0])))
        setting.sink.changed(raw := node("c", document(model=f"Other {i}")))
        setting.sink.gone(raw)
    over.set()
    for thread in others:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert failures == []
    setting.shelf.build_all()
    setting.sink.share({name: shared})
    setting.sink.retry()
    a, b = setting.state("a"), setting.state("b")
    assert a is not None
    assert b is not None
    assert (setting.links("a"), a.free_mask, setting.links("b"), b.free_mask) == ("NV2", 0b01, "NV8", 0b11)
    assert setting.state("c") is None


class _HereAndNow:
    """A worker that works in the thread that asks."""

    def run(self, function: Any, *args: Any) -> Any:
        return function(*args)


# Objects that describe the fabric


def test_reader_is_made_anew_once_for_many_objects_that_change() -> None:
    made: list[int] = []
    told: list[int] = []

    def make(objects: Iterable[Mapping[str, Any]]) -> ObjectReader:
        made.append(len(list(objects)))
        return ObjectReader((GPU,))

    sink = FabricSink(make, structlog.get_logger())
    sink.told = lambda: told.append(sink.version)
    sink.replace([_hypernode(f"leaf-{i}", [f"n{i}"]) for i in range(50)])
    for i in range(50):
        sink.changed(_hypernode(f"leaf-{i}", [f"m{i}"]))
    assert sink.reader() is sink.reader()
    sink.gone(_hypernode("leaf-7", []))
    sink.reader()
    assert made == [50, 49]
    assert told == list(range(1, 53))


def test_object_whose_status_alone_changes_is_no_change() -> None:
    told: list[int] = []
    sink = FabricSink(lambda _: ObjectReader((GPU,)), structlog.get_logger())
    sink.told = lambda: told.append(sink.version)
    raw = _hypernode("leaf", ["a"])
    sink.replace([raw])
    sink.changed({**raw, "metadata": {"name": "leaf", "resourceVersion": "9"}, "status": {"nodeCount": 3}})
    sink.replace([raw])
    assert told == [1]


def test_fabric_that_trips_a_bug_leaves_nodes_without_a_place() -> None:
    def make(objects: Iterable[Mapping[str, Any]]) -> ObjectReader:
        if list(objects):
            raise RecursionError("deep")
        return ObjectReader((GPU,))

    sink = FabricSink(make, structlog.get_logger())
    sink.replace([_hypernode("leaf", ["a"])])
    assert sink.reader().node(node("a", None)).place.path == ()


def test_nodes_are_read_by_the_objects_as_they_are_now(setting: Setting) -> None:
    fabric = FabricSink(
        lambda objects: reader_for(ObjectReader((GPU,)), FabricConfig("hypernodes"), objects)[0], structlog.get_logger()
    )
    sink = NodeSink(setting.cluster, setting.lock, lambda: 0.0, fabric.reader, setting.machines, lambda *_: None)
    raw = node("a", None)
    for leaf in ("leaf-1", "leaf-2"):
        fabric.replace([_hypernode(leaf, ["a"])])
        sink.changed(raw)
        state = setting.state("a")
        assert state is not None
        assert state.facts.place.path == (("tier-1", leaf),)


def _hypernode(name: str, members: Iterable[str]) -> dict[str, Any]:
    listed = [{"type": "Node", "selector": {"exactMatch": {"name": member}}} for member in members]
    return {"metadata": {"name": name}, "spec": {"tier": 1, "members": listed}}
