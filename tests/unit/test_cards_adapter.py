"""Polls of cards are judged in a worker, and the planner is told of what has changed, once."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import pytest
import structlog
from structlog.testing import capture_logs

from pyscheduler.adapters import card_judge, cards
from pyscheduler.adapters.card_judge import LostError, Told
from pyscheduler.adapters.cards import SAVE_S, Cards
from pyscheduler.adapters.metrics import Metrics
from pyscheduler.adapters.prometheus import Collected, Memory
from pyscheduler.adapters.prometheus_errors import PrometheusError
from pyscheduler.adapters.worker import Worker
from pyscheduler.core.capacity.cards import CardFacts, CardKey
from pyscheduler.core.capacity.config import CapacityConfig, Mode
from pyscheduler.core.capacity.opinions import NodeOpinion, Opinion
from pyscheduler.core.capacity.poll import Column, Poll
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.states import State
from pyscheduler.core.cards import NodeCards
from pyscheduler.core.cluster import Cluster
from pyscheduler.core.model import NodeFacts
from pyscheduler.readers.cards.memory_shards import Shards, unpack
from pyscheduler.readers.metrics_config import MetricsConfig
from pyscheduler.readers.objects import ObjectReader
from tests.builders import bound, node, uuids

P = ParamSpec("P")
T = TypeVar("T")

BEGUN = 1_700_000_000.0
GOOD, FAULTY = CardKey("a", "GPU-good"), CardKey("a", "GPU-faulty")
SLICE = CardKey("b", "GPU-good", "3")


class Here(Worker):
    """Runs in this process."""

    def __init__(self) -> None:
        self.pods: list[Mapping[CardKey, str]] = []
        self.runs = 0

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.runs += 1
        if function is card_judge.judge:
            self.pods.append(cast(Told, args[5]).pods)
        return function(*args, **kwargs)

    def stop(self) -> None:
        """There is no process."""


class Shelf:
    """What was saved."""

    def __init__(self, memory: Shards | None = None) -> None:
        self.memory: Shards = memory or {}
        self.saved = 0
        # What could not be had at the start.
        self.unread: Shards | None = None

    def load(self) -> Shards:
        return self.memory

    def late(self) -> Shards | None:
        late, self.unread = self.unread, None
        return late

    def save(self, shards: Shards) -> None:
        self.memory = shards
        self.saved += 1


class Scene:
    """Cards whose health is `health` at each poll."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, memory: Shards | None = None, url: str | None = "http://prometheus"
    ) -> None:
        self.health: dict[CardKey, float] = {GOOD: 1.0, FAULTY: 1.0, SLICE: 0.0}
        self.fails = self.partial = False
        self.cluster = Cluster(epoch=1, scheduler_name="gpu-topology")
        self.cluster.observe_node(node("a", "hgx-h100"), 0.0)
        self.told: list[tuple[str, dict[str, str]]] = []
        self.known: dict[str, NodeCards] = {}
        set_cards = self.cluster.set_cards

        def note(name: str, known: Any, now: float) -> None:
            self.told.append((name, dict(known.excluded) if known is not None else {}))
            self.known[name] = known
            set_cards(name, known, now)

        monkeypatch.setattr(self.cluster, "set_cards", note)
        monkeypatch.setattr(card_judge, "collect", self.collect)
        self.now = BEGUN
        self.worker, self.shelf, self.opinions = Here(), Shelf(memory), dict[str, NodeOpinion]()
        logger = structlog.get_logger()
        self.metrics = Metrics(logger)
        self.cards = Cards(
            MetricsConfig(url=url),
            CapacityConfig(),
            self.cluster,
            threading.Lock(),
            lambda: self.now,
            lambda: self.opinions,
            lambda: {"10.0.0.7": "a", "b": "a"},
            self.shelf,
            self.worker,
            self.metrics,
            logger,
        )

    def collect(self, _config: MetricsConfig, _xids: object, nodes: Mapping[str, str], _last: Memory, now: float) -> Collected:
        assert nodes == {"a": "a", "10.0.0.7": "a", "b": "a"}
        if self.fails:
            raise PrometheusError("http://prometheus does not answer")
        keys = list(self.health)
        column = Column(range(len(keys)), np.array(list(self.health.values())), np.full(len(keys), now))
        facts = [CardFacts("H100")] * len(keys)
        poll = Poll(now, complete=not self.partial, cards=keys, samples={Quantity.HEALTH: column}, facts=facts)
        return Collected((poll,), Memory(now, now), ("partial",) if self.partial else (), newest=now)

    def poll(self) -> list[tuple[str, dict[str, str]]]:
        """Poll once, and return what the planner was told."""
        self.told.clear()
        self.now += 30.0
        self.cards._collector._now = lambda: self.now
        self.cards._collector.poll()
        return list(self.told)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    yield Scene(monkeypatch)
    card_judge._judge = None


def test_planner_is_told_of_a_faulty_card_at_the_next_poll_and_of_nothing_that_is_as_before(scene: Scene) -> None:
    assert scene.poll() == []
    scene.health[FAULTY] = 0.0
    assert scene.poll() == [("a", {"GPU-faulty": "faulty"})]
    assert scene.poll() == []


def test_slices_of_cards_are_not_told_of(scene: Scene) -> None:
    scene.health = {SLICE: 0.0}
    assert scene.poll() == []
    assert [card.card for card in scene.cards.cards() if card.excluded] == [SLICE]


def test_what_others_say_of_a_card_counts(scene: Scene) -> None:
    scene.poll()
    scene.opinions = {"a": NodeOpinion(cards={"GPU-good": Opinion(0.0, "Autopilot says EVICT")})}
    assert scene.poll() == [("a", {"GPU-good": "reported by others"})]
    assert "Autopilot says EVICT" in next(card.evidence for card in scene.cards.cards() if card.card == GOOD)


def test_card_of_which_others_warn_is_ranked_behind_and_no_slower(scene: Scene) -> None:
    scene.poll()
    scene.opinions = {"a": NodeOpinion(cards={"GPU-good": Opinion(0.7, "the vendor's check says MONITOR")})}
    assert scene.poll() == [("a", {})]
    assert scene.known["a"] == NodeCards(scores={"GPU-good": 0.7})
    assert scene.poll() == []
    scene.opinions = {}
    scene.poll()
    assert scene.known["a"] == NodeCards()


def test_score_that_wavers_is_told_once(scene: Scene) -> None:
    told = []
    for value in (0.98, 0.9, 0.91, 0.89, 0.91, 0.93, 1.0):
        scene.opinions = {"a": NodeOpinion(cards={"GPU-good": Opinion(value, "somebody says so")})}
        if scene.poll():
            told.append(scene.known["a"].scores.get("GPU-good"))
    assert told == [0.98, 0.9, 0.93, None]


def test_judge_learns_which_pod_has_which_card(scene: Scene) -> None:
    scene.cluster.observe_pod(bound("p", "a", 2, ("GPU-good", "GPU-faulty")), 0.0)
    scene.poll()
    assert scene.worker.pods[-1] == {GOOD: "p", FAULTY: "p"}


def test_poll_that_fails_changes_nothing_and_is_told(scene: Scene) -> None:
    scene.health[FAULTY] = 0.0
    scene.poll()
    scene.fails = True
    with capture_logs() as logs:
        assert scene.poll() == []
    assert any("does not answer" in str(each) for each in logs)
    assert {card.card: card.excluded for card in scene.cards.cards()}[FAULTY]


def test_worker_that_died_is_replaced_and_knows_what_was_saved(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.health[FAULTY] = 0.0
    scene.poll()
    scene.shelf.memory = card_judge.memory(scene.cards._life or 0)
    # The node is not told of while nothing is known of it, and is when it is known to be well.
    monkeypatch.setattr(card_judge, "_judge", None)
    scene.fails = True
    assert scene.poll() == []
    scene.fails, scene.partial, scene.health = False, True, {GOOD: 1.0}
    assert scene.poll() == []
    scene.partial, scene.health = False, {GOOD: 1.0, FAULTY: 1.0}
    scene.poll()
    assert {card.card: card.excluded for card in scene.cards.cards()}[FAULTY]
    assert scene.cluster.relative_speed(0, ()) is None


def test_card_that_nobody_knows_of_any_more_is_not_left_out_for_ever(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.health[FAULTY] = 0.0
    scene.poll()
    monkeypatch.setattr(card_judge, "_judge", None)
    scene.health = {GOOD: 1.0}
    assert scene.poll() == [("a", {})]


def test_memory_of_another_form_is_told_and_left_out_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Scene(monkeypatch, {"pyscheduler-cards-0": gzip.compress(b'{"version": 99}\n')})
    with capture_logs() as logs:
        made.poll()
    assert any("left out of use" in str(each) for each in logs)
    assert len(made.cards.cards()) == 3 + 8


def test_memory_is_saved_every_five_minutes(scene: Scene) -> None:
    scene.health = {GOOD: 1.0}
    polls = int(SAVE_S / 30)
    saved = []
    for _ in range(2 * polls + 1):
        scene.poll()
        saved.append(scene.shelf.saved)
    assert (saved[polls - 2], saved[polls - 1], saved[-1]) == (0, 1, 2)
    assert "GPU-good" in unpack(scene.shelf.memory)[0]["cards"]


def test_card_that_becomes_bad_is_saved_with_the_poll_and_then_no_more(scene: Scene) -> None:
    scene.health = {GOOD: 1.0, FAULTY: 1.0}
    scene.poll()
    assert scene.shelf.saved == 0
    scene.health[FAULTY] = 0.0
    for _ in range(3):
        scene.poll()
        assert scene.shelf.saved == 1
    assert unpack(scene.shelf.memory)[0]["cards"]["GPU-faulty"]["state"] == State.FAILED


def test_what_is_known_is_saved_at_the_end(scene: Scene) -> None:
    scene.cards.stop()
    assert scene.shelf.saved == 0, "nothing is known yet"
    scene.health = {GOOD: 1.0}
    scene.poll()
    scene.cards.stop()
    assert scene.shelf.saved == 1


def test_end_does_not_wait_long_for_what_cannot_be_saved(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "STOP_S", 0.01)
    over = threading.Event()
    monkeypatch.setattr(scene.shelf, "save", lambda _: over.wait(60))
    scene.health = {GOOD: 1.0}
    scene.poll()
    scene.cards.stop()
    assert not over.is_set()
    over.set()


OURS = uuids("hgx-h100", "a", 0)[0]


def test_planner_knows_of_a_bad_card_after_a_restart_before_prometheus_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Scene(monkeypatch)
    before.health = {CardKey("a", OURS): 0.0}
    before.poll()
    after = Scene(monkeypatch, before.shelf.memory)
    told = []

    def collect(*_: object) -> Collected:
        told.append((dict(after.known), after.cards.begun.is_set()))
        raise PrometheusError("http://prometheus does not answer")

    monkeypatch.setattr(card_judge, "collect", collect)
    assert after.poll() == [("a", {OURS: "faulty"})]
    assert told == [({"a": NodeCards({OURS: "faulty"})}, True)]
    assert after.cluster.state(0).free == 7
    assert after.poll() == []


def test_memory_that_comes_late_keeps_a_failed_card_out_and_is_told_to_the_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Scene(monkeypatch)
    before.health = {CardKey("a", OURS): 0.0}
    before.poll()
    after = Scene(monkeypatch)
    after.health = {CardKey("a", OURS): 1.0}
    after.poll()
    assert after.known == {}
    after.shelf.unread = before.shelf.memory
    assert after.poll() == [("a", {OURS: "faulty"})]
    assert unpack(after.shelf.memory)[0]["cards"][OURS]["state"] == State.FAILED


def test_what_of_a_late_memory_cannot_be_read_is_told(scene: Scene) -> None:
    scene.poll()
    scene.shelf.unread = {"pyscheduler-cards-0": b""}
    with capture_logs() as logs:
        scene.poll()
    assert any("left out of use" in str(each) for each in logs)


def test_nobody_waits_for_a_judge_that_cannot_begin(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene.shelf, "load", lambda: 1 / 0)
    with capture_logs():
        scene.poll()
    assert scene.cards.begun.is_set()


def test_without_prometheus_what_others_say_counts_and_else_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, url=None)
    scene.poll()
    assert (scene.worker.runs, scene.cards.begun.is_set(), scene.cards.cards()) == (0, True, [])
    scene.opinions = {"a": NodeOpinion(every=Opinion(0.0, "out for tests")), "gone": NodeOpinion(every=Opinion(0.0, "bad"))}
    assert scene.poll() == [("a", dict.fromkeys(uuids("hgx-h100", "a", *range(8)), "reported by others"))]
    assert scene.cluster.state(0).free == 0
    assert {card.evidence for card in scene.cards.cards()} == {"out for tests"}
    monkeypatch.setattr(card_judge, "_judge", None)
    assert scene.poll() == [("a", dict.fromkeys(uuids("hgx-h100", "a", *range(8)), "reported by others"))], "the worker has died"
    scene.opinions = {}
    polls = 0
    while scene.cluster.state(0).free < 8:
        scene.poll()
        polls += 1
    assert polls == 10
    assert scene.shelf.saved == 0
    assert b"outcome=" not in scene.metrics.exposition()


def test_card_that_left_its_node_is_counted_no_more(scene: Scene) -> None:
    scene.health = {CardKey("a", OURS): 1.0, FAULTY: 0.0}
    scene.poll()
    assert b'pyscheduler_cards{state="failed"} 1.0' in scene.metrics.exposition()
    del scene.health[FAULTY]
    for _ in range(10):
        scene.poll()
    assert b'pyscheduler_cards{state="failed"} 0.0' in scene.metrics.exposition()
    assert scene.known["a"] == NodeCards()


@pytest.mark.parametrize(
    ("inventory", "out"),
    [({}, {"GPU-2"}), ({"full": [None, None], "idle": [None]}, {"GPU-2", "index:0", "index:1"})],
    ids=["UUIDs", "no UUIDs"],
)
def test_in_classic_mode_nodes_are_ranked_by_their_score_and_busy_ones_left_out(
    monkeypatch: pytest.MonkeyPatch, inventory: dict[str, list[str | None]], out: set[str]
) -> None:
    used = {CardKey("idle", "GPU-1"): 0.1, CardKey("full", "GPU-2"): 1.0}

    def collect(_config: object, _xids: object, _nodes: object, _last: Memory, now: float) -> Collected:
        column = Column(range(2), np.array(list(used.values())), np.full(2, now))
        samples = {Quantity.SM_ACTIVE: column, Quantity.ENGINE_ACTIVE: column, Quantity.FB_USED: column}
        return Collected((Poll(now, complete=True, cards=list(used), samples=samples),), Memory(now, now))

    monkeypatch.setattr(card_judge, "collect", collect)
    monkeypatch.setattr(card_judge, "_judge", None)
    life, _ = card_judge.begin(CapacityConfig(mode=Mode.CLASSIC), {})
    told: dict[str, Any] = {}
    for step in range(20):
        told |= card_judge.judge(life, MetricsConfig(), (), {}, Memory(), Told({}, {}, inventory), BEGUN + 30.0 * step).changes
    assert told["full"].excluded == dict.fromkeys(out, "busy")
    assert told["idle"].excluded == {}
    assert told["idle"].scores["GPU-1"] == pytest.approx(0.9, abs=0.05)
    assert told["idle"].speeds == {}, "load is no speed"


# -- GPUs without UUIDs -------------------------------------------------------------------------------------------------------


def without_uuids(*named: int) -> NodeFacts:
    """Return a node of eight GPUs of which a document says the UUIDs of these alone."""
    found = node("a", "hgx-h100")
    assert found.machine is not None
    uuids = tuple(uuid if index in named else None for index, uuid in enumerate(found.machine.uuids))
    return replace(found, machine=replace(found.machine, uuids=uuids))


@pytest.mark.parametrize("facts", [without_uuids(), without_uuids(0, 5), node("a", None)], ids=["preset", "some", "count"])
@pytest.mark.parametrize("url", [None, "http://prometheus"])
def test_node_that_others_report_as_a_whole_is_out_though_its_gpus_have_no_uuids(
    monkeypatch: pytest.MonkeyPatch, facts: NodeFacts, url: str | None
) -> None:
    scene = Scene(monkeypatch, url=url)
    scene.health = {GOOD: 1.0}
    scene.cluster.observe_node(facts, 0.0)
    scene.opinions = {"a": NodeOpinion(every=Opinion(1.0, "all is well"))}
    scene.poll()
    assert scene.cluster.state(0).free == 8
    assert "index:7" not in {card.card.uuid for card in scene.cards.cards()}
    scene.opinions = {"a": NodeOpinion(every=Opinion(0.0, "out for tests"))}
    scene.poll()
    assert scene.cluster.state(0).free == 0
    assert {(card.excluded, card.evidence) for card in scene.cards.cards()} == {(True, "out for tests")}
    scene.opinions = {}
    scene.poll()
    assert scene.cluster.state(0).free == 0, "they come back as any other card"
    for _ in range(30):
        scene.poll()
    assert scene.cluster.state(0).free == 8
    card_judge._judge = None


def test_gpus_without_uuids_of_a_node_are_not_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, url=None)
    scene.cluster.observe_node(without_uuids(), 0.0)
    scene.cluster.observe_node(replace(without_uuids(), name="b"), 0.0)
    scene.opinions = {"a": NodeOpinion(every=Opinion(0.0, "out for tests"))}
    scene.poll()
    scene.opinions["b"] = NodeOpinion(every=Opinion(0.9, "a little warm"))
    scene.poll()
    assert [scene.cluster.state(number).free for number in range(2)] == [0, 8]
    assert {card.excluded for card in scene.cards.cards() if card.card.node == "b"} == {False}
    card_judge._judge = None


@pytest.mark.parametrize("facts", [without_uuids(), without_uuids(0, 5)], ids=["preset", "some"])
def test_bad_card_that_cannot_be_told_from_its_neighbours_is_not_shown_as_out(scene: Scene, facts: NodeFacts) -> None:
    scene.cluster.observe_node(facts, 0.0)
    scene.health = {GOOD: 1.0, FAULTY: 0.0}
    with capture_logs() as logs:
        scene.poll()
    assert scene.cluster.state(0).free == 8
    shown = {card.card: card for card in scene.cards.cards()}[FAULTY]
    assert (shown.state, shown.excluded, shown.unlocated) == (State.FAILED, False, True)
    assert shown.evidence == (
        "its health check does not pass; no document says which GPU of its node it is, so it cannot be kept out"
        " (`pyscheduler topology merge` writes one)"
    )
    (problem,) = [entry["problem"] for entry in logs if "problem" in entry]
    assert problem.startswith(
        "1 bad card cannot be kept out, for no document says the UUIDs of the GPUs there (nodes a): publish"
    )
    scene.opinions = {"a": NodeOpinion(every=Opinion(0.0, "out for tests"))}
    scene.poll()
    assert scene.cluster.state(0).free == 0
    assert all(card.excluded and not card.unlocated for card in scene.cards.cards())


def test_bad_card_that_a_document_names_is_out_beside_gpus_without_uuids(scene: Scene) -> None:
    scene.cluster.observe_node(without_uuids(0), 0.0)
    (named,) = uuids("hgx-h100", "a", 0)
    scene.health = {CardKey("a", named): 0.0, GOOD: 1.0}
    with capture_logs() as logs:
        scene.poll()
    assert scene.cluster.state(0).free == 7
    assert {card.card.uuid: card.excluded for card in scene.cards.cards()} == {named: True, GOOD.uuid: False}
    assert not [entry for entry in logs if "cannot be kept out" in str(entry)]


# -- a card that is repaired --------------------------------------------------------------------------------------------------


class Shop:
    """A node of eight cards, of which the first may be held down by heat, and what its Node object says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys = [CardKey("a", f"GPU-{number}") for number in range(8)]
        self.works = self.hot = False
        self.note: dict[str, Any] = {}
        self.now = BEGUN
        self.reader = ObjectReader(("nvidia.com/gpu",))
        monkeypatch.setattr(card_judge, "collect", self.collect)
        self.life, _ = card_judge.begin(CapacityConfig(), {})
        self.out: set[str] = set()
        self.findings: tuple[str, ...] = ()

    def collect(self, _config: object, _xids: object, _nodes: object, _last: Memory, now: float) -> Collected:
        shown = {
            Quantity.SM_CLOCK_HZ: 1.7e9 if self.works else 3e8,
            Quantity.ENGINE_ACTIVE: 0.9 if self.works else 0.0,
            Quantity.HW_THERMAL_FRACTION: 0.0,
        }
        values = {quantity: np.full(len(self.keys), value) for quantity, value in shown.items()}
        values[Quantity.HW_THERMAL_FRACTION][0] = 0.5 if self.works and self.hot else 0.0
        samples = {quantity: Column(range(8), column, np.full(8, now - 5)) for quantity, column in values.items()}
        poll = Poll(now, complete=True, cards=self.keys, samples=samples, facts=[CardFacts("H100", 700.0)] * 8)
        return Collected((poll,), Memory(now, now))

    def poll(self, times: int = 1, *, works: bool = False, hot: bool = False) -> set[str]:
        """Poll, and return which cards the planner leaves out."""
        self.works, self.hot = works, hot
        annotations = {"pyscheduler.io/cards": json.dumps(self.note)} if self.note else {}
        record = self.reader.node({"metadata": {"name": "a", "annotations": annotations}})
        assert not record.findings
        for _ in range(times):
            self.now += 30.0
            told = Told({}, {"a": record.opinion})
            judged = card_judge.judge(self.life, MetricsConfig(), (), {"a": "a"}, Memory(), told, self.now)
            assert judged.collected is not None
            self.findings = tuple(finding.message for finding in judged.collected.findings)
            if (cards := judged.changes.get("a")) is not None:
                self.out = set(cards.excluded)
        return self.out

    def repair(self, card: str = "GPU-0", ahead_s: float = 0.0) -> None:
        self.note = {card: {"repairedAt": datetime.fromtimestamp(self.now + ahead_s, UTC).isoformat()}}

    def restart(self) -> None:
        self.life, problems = card_judge.begin(CapacityConfig(), card_judge.memory(self.life))
        assert problems == []


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    yield Shop(monkeypatch)
    card_judge._judge = None


@pytest.mark.parametrize("card", ["GPU-0", "*"])
def test_annotation_of_a_repair_lets_a_card_in_once(shop: Shop, card: str) -> None:
    assert shop.poll(5, works=True) == set()
    assert shop.poll(10, works=True, hot=True) == {"GPU-0"}
    assert shop.poll(60) == {"GPU-0"}, "a card that rests does not heal"
    shop.repair(card)
    assert shop.poll() == set()
    assert shop.poll(10, works=True) == set()
    shop.restart()
    assert shop.poll(10, works=True) == set()
    assert shop.poll(10, works=True, hot=True) == {"GPU-0"}, "slow again, out again"
    assert shop.poll(10) == {"GPU-0"}, "the repair that is still told heals nothing anew"
    shop.restart()
    assert shop.poll(10) == {"GPU-0"}, "nor after a restart"
    shop.repair(card)
    assert shop.poll() == set()


def test_repair_that_is_still_to_come_is_told_and_waits(shop: Shop) -> None:
    shop.poll(10, works=True, hot=True)
    shop.repair(ahead_s=200.0)
    assert shop.poll() == {"GPU-0"}
    assert shop.findings == (
        "annotation pyscheduler.io/cards of node a says that GPU-0 was repaired at 2023-11-14T22:21:40Z, which is still to come",
    )
    assert shop.poll(6) == set()
    assert not shop.findings


def test_judge_goes_on_when_the_clock_was_set_back(shop: Shop) -> None:
    shop.poll(5, works=True)
    shop.now -= 86400.0
    assert shop.poll(10, works=True, hot=True) == {"GPU-0"}


def test_judge_of_another_process_is_not_asked() -> None:
    with pytest.raises(LostError):
        card_judge.cards(card_judge.begin(CapacityConfig(), {})[0] + 1, BEGUN)
