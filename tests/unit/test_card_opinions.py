"""What others say of cards on Nodes and in ResourceSlices: understood, applied to the right cards, and told where it is not."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, cast

import pytest

from pyscheduler.adapters.api import ApiServer
from pyscheduler.adapters.node_opinions import NodeOpinions, SliceSink, slices_path
from pyscheduler.config import Config
from pyscheduler.core.capacity.capacity import Capacity
from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.opinions import SAYS_NOTHING, NodeOpinion, Opinion, opinions_of, repairs_of
from pyscheduler.core.capacity.states import State
from pyscheduler.errors import ConfigError, KubernetesError
from pyscheduler.readers.lists import slice_page
from pyscheduler.readers.objects import ObjectReader
from tests.polls import IDLE, START, cards_of, poll_of

GPU = "nvidia.com/gpu"
ONE, TWO = (f"GPU-{number}1111111-ab12-cd34-ef56-111111111111" for number in (1, 2))
AUTOPILOT = "autopilot.ibm.com/gpuhealth"
NOTE = "pyscheduler.io/cards"
Raw = dict[str, Any]


def node(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    conditions: list[Raw] | None = None,
    taints: list[Raw] | None = None,
) -> Raw:
    return {
        "metadata": {"name": "n", "uid": "u", "labels": labels, "annotations": annotations},
        "spec": {"taints": taints} if taints else {},
        "status": {"capacity": {GPU: "8"}, "allocatable": {GPU: "8"}, "conditions": conditions},
    }


def condition(kind: str, status: str = "True", message: str = "", reason: str = "") -> Raw:
    return {"type": kind, "status": status, "message": message, "reason": reason}


def said(raw: Raw, reader: ObjectReader | None = None) -> NodeOpinion:
    record = (reader or ObjectReader((GPU,))).node(raw)
    assert record.findings == ()
    return record.opinion


def problems(raw: Raw) -> list[tuple[str, str]]:
    return [(finding.code, finding.message) for finding in ObjectReader((GPU,)).node(raw).findings]


def documented(names: list[str | None], note: Any) -> Raw:
    gpus = [{"id": f"GPU{index}", "uuid": name} if name else {"id": f"GPU{index}"} for index, name in enumerate(names)]
    document = {"version": 1, "kind": "node", "gpus": gpus, "links": []}
    return node(annotations={NOTE: json.dumps(note), "pyscheduler.io/topology": json.dumps(document)})


BAD = {"value": 0, "reason": "bad"}


@pytest.mark.parametrize("name", [ONE.lower(), ONE.removeprefix("GPU-"), ONE.upper()])
def test_card_that_the_node_does_not_have_is_told_with_the_one_that_is_meant(name: str) -> None:
    what = f'annotation {NOTE}: "{name}" is none of the cards of this node: write {ONE}'
    assert problems(documented([TWO, ONE], {name: BAD, TWO: BAD, "*": BAD})) == [("evidence-unusable", what)]


def test_card_that_is_like_none_of_the_node_is_told_and_nothing_where_cards_are_not_known() -> None:
    note = {"GPU-x": {"repairedAt": "2026-05-01T12:00:00Z"}}
    (told,) = problems(documented([TWO, ONE], note))
    assert told[1].endswith(f'"GPU-x" is none of the cards of this node: write a UUID of its node document, such as {TWO}')
    assert problems(documented([TWO, None], note)) == []
    assert problems(node(annotations={NOTE: json.dumps(note)})) == []


# -- what is known ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "value", "says"),
    [
        (node({AUTOPILOT: "EVICT"}), 0.0, f"IBM Autopilot says EVICT of its node: {AUTOPILOT}"),
        (node({AUTOPILOT: "WARN"}), 0.5, "IBM Autopilot says WARN"),
        (node({AUTOPILOT: "ERR"}), 0.5, "IBM Autopilot says ERR"),
        (node({"dgxc.nvidia.com/nvsentinel-state": "draining"}), 0.0, "NVSentinel says draining of its node"),
        (node(conditions=[condition("GpuMemWatch", message="bad")]), 0.0, "NVSentinel says GpuMemWatch: bad"),
        (node(conditions=[condition("SysLogsXIDError", reason="Is")]), 0.0, "NVSentinel says SysLogsXIDError: Is"),
        (node(conditions=[condition("NebiusGPUError")]), 0.0, "Nebius says NebiusGPUError: True"),
        (node(conditions=[condition("AMDGPUProblem")]), 0.0, "amdgpuhealth says AMDGPUProblem"),
        (node(conditions=[condition("GPUMissing")]), 0.5, "AKS says GPUMissing"),
        (node(conditions=[condition("GPUClockThrottling")]), 0.8, "AKS says GPUClockThrottling"),
        (
            node(taints=[{"key": "amd-gpu-unhealthy", "value": "AMDGPUProblem", "effect": "NoSchedule"}]),
            0.0,
            "AMD GPU operator keeps pods off its node: taint amd-gpu-unhealthy=AMDGPUProblem",
        ),
        (node(taints=[{"key": "nvidia.com/gpu-error", "effect": "PreferNoSchedule"}]), 0.5, "NVSentinel keeps pods off"),
        (node(annotations={AUTOPILOT: "EVICT"}), 0.0, "IBM Autopilot says EVICT"),
    ],
)
def test_signals_of_others_are_understood(raw: Raw, value: float, says: str):
    opinion = said(raw)
    assert opinion.every is not None
    assert opinion.every.value == value
    assert opinion.every.reason.startswith(says)
    assert opinion.cards == {}


@pytest.mark.parametrize(
    "raw",
    [
        node(),
        node({AUTOPILOT: "PASS"}),
        node({AUTOPILOT: "TESTING"}),
        node({AUTOPILOT: ""}),
        node(conditions=[condition("GpuMemWatch", "False", "No Health Failures")]),
        node(conditions=[condition("GpuMemWatch", "Unknown")]),
        node(conditions=[condition("Ready"), condition("DiskPressure")]),
        node(taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
        node({"other.example.com/gpuhealth": "EVICT"}),
    ],
)
def test_nodes_of_which_nothing_bad_is_said_say_nothing(raw: Raw):
    assert said(raw) == SAYS_NOTHING


def test_an_annotation_wins_over_a_label_of_the_same_key():
    assert said(node({AUTOPILOT: "EVICT"}, {AUTOPILOT: "PASS"})) == SAYS_NOTHING


def test_the_worst_of_several_counts():
    raw = node({AUTOPILOT: "WARN"}, conditions=[condition("GPUClockThrottling"), condition("GpuMemWatch")])
    opinion = said(raw).every
    assert opinion is not None
    assert (opinion.value, opinion.reason) == (0.0, "NVSentinel says GpuMemWatch: True")


@pytest.mark.parametrize(
    ("message", "cards"),
    [
        (f"ErrorCode:95 GPU:0 PCI:0000:0f:00.0 GPU_UUID:{ONE} uncontained Recommended Action=RESTART_VM;", {ONE}),
        (f"ErrorCode:95 GPU_UUID:{ONE} x;ErrorCode:95 GPU_UUID:{TWO} y;", {ONE, TWO}),
        (f"ErrorCode:95 GPU_UUID:{ONE} x;ErrorCode:99 NVSWITCH:0 y;", set()),
        (f"ErrorCode:95 GPU_UUID:{ONE} {'x' * 1000};", set()),
        ("ErrorCode:95 GPU:0 bad;", set()),
        ("GPU_UUID:GPU-123", set()),
    ],
    ids=["one", "two", "one and a switch", "cut off", "index only", "no UUID"],
)
def test_condition_that_names_all_its_cards_is_of_these_alone(message: str, cards: set[str]):
    opinion = said(node(conditions=[condition("GpuMemWatch", message=message)]))
    assert set(opinion.cards) == cards
    assert (opinion.every is None) is bool(cards)


def test_foreign_text_is_one_short_printable_line():
    opinion = said(node(conditions=[condition("GpuMemWatch", message="bad\n\x1b[31m" + "x" * 500)])).every
    assert opinion is not None
    assert opinion.reason.isprintable()
    assert len(opinion.reason) <= 160
    assert opinion.reason.endswith("...")


@pytest.mark.parametrize("value", ["MAYBE", "ja", "0"])
def test_value_that_is_not_known_is_told_with_those_that_are(value: str):
    ((code, message),) = problems(node({AUTOPILOT: value}))
    assert code == "evidence-unknown"
    assert f"{AUTOPILOT} says {value!r}, which is none of pass, testing, warn, err, evict: it does not count" in message


# -- the annotation ---------------------------------------------------------------------------------------------------


def note(body: object) -> Raw:
    return node(annotations={NOTE: body if isinstance(body, str) else json.dumps(body)})


def test_annotation_says_something_of_single_cards_and_of_all():
    opinion = said(note({ONE: {"value": 0.25, "reason": "fan is loud"}, TWO: {"value": 1}, "*": {"value": 0.75}}))
    assert opinion.cards == {ONE: Opinion(0.25, "fan is loud")}
    assert opinion.every == Opinion(0.75, f"annotation {NOTE} of its node says 0.75")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "is a list: write {"),
        ("3", "is 3: write {"),
        ({ONE: 3}, f'"{ONE}" is 3: write {{'),
        ({ONE: {}}, "has the value null: write a number from 0 (bad) to 1 (good)"),
        ({ONE: {"value": 2}}, "has the value 2: write a number"),
        ({ONE: {"value": -0.1}}, "has the value -0.1: write a number"),
        ({ONE: {"value": True}}, "has the value true: write a number"),
        ({ONE: {"value": "1"}}, 'has the value "1": write a number'),
        ({ONE: {"value": []}}, "has the value a list: write a number"),
        (f'{{"{ONE}": {{"value": NaN}}}}', "has the value NaN: write a number"),
        (f'{{"{ONE}": {{"value": {10**400}}}}}', "write a number"),
        ({ONE: {"value": 0, "reason": 5}}, "has the reason 5: write a text"),
        ({str(number): {"value": 0} for number in range(2000)}, "names 2000 cards: no node has more than 1024"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_annotation_of_another_form_is_told_and_does_not_count(body: object, says: str):
    record = ObjectReader((GPU,)).node(note(body))
    assert record.opinion == SAYS_NOTHING
    (finding,) = record.findings
    assert (finding.code, finding.node) == ("evidence-unusable", "n")
    assert finding.message.startswith(f"annotation {NOTE}: ")
    assert says in finding.message
    assert len(finding.message) < 400


def test_entry_that_is_wrong_costs_no_other():
    record = ObjectReader((GPU,)).node(note({ONE: {"value": 0}, TWO: {"value": 7}}))
    assert list(record.opinion.cards) == [ONE]
    assert len(record.findings) == 1


def test_many_wrong_entries_are_told_in_few():
    told = problems(note({str(number): number for number in range(100)}))
    assert len(told) == 5
    assert "(95 more like it)" in told[0][1]


def test_half_a_surrogate_pair_is_no_text_for_a_message():
    for body in ('{"\\ud800": 3}', '{"a": {"value": 0, "reason": "x\\ud800"}}'):
        record = ObjectReader((GPU,)).node(note(body))
        for text in [*(finding.message for finding in record.findings), *(o.reason for o in record.opinion.cards.values())]:
            text.encode()


NOON = 1_777_636_800.0  # 2026-05-01T12:00:00Z, by date(1)


def test_annotation_says_when_cards_were_repaired_alone_or_beside_a_value():
    opinion = said(
        note(
            {
                ONE: {"repairedAt": "2026-05-01T12:00:00Z", "reason": "new cable"},
                TWO: {"value": 0.5, "reason": "fan is loud", "repairedAt": "2026-05-01T14:00:00.9+02:00"},
                "*": {"repairedAt": "2026-05-01T11:00:00-01:00"},
            }
        )
    )
    assert opinion == NodeOpinion(None, {TWO: Opinion(0.5, "fan is loud")}, {ONE: NOON, TWO: NOON, "*": NOON})


def test_repair_of_a_card_whose_value_is_good_counts():
    assert said(note({ONE: {"value": 1, "repairedAt": "2026-05-01T12:00:00Z"}})) == NodeOpinion(repaired={ONE: NOON})


@pytest.mark.parametrize(
    "time", [5, None, True, [], "", "yesterday", "2026-05-01", "2026-05-01T12:00:00", "2026-13-01T12:00:00Z", "x" * 5000]
)
def test_time_of_a_repair_that_is_none_is_told_and_costs_nothing_else(time: object):
    record = ObjectReader((GPU,)).node(
        note({ONE: {"value": 0.5, "reason": "slow", "repairedAt": time}, TWO: {"repairedAt": "2026-05-01T12:00:00Z"}})
    )
    assert record.opinion == NodeOpinion(None, {ONE: Opinion(0.5, "slow")}, {TWO: NOON})
    (finding,) = record.findings
    assert f'"{ONE}" has the repairedAt ' in finding.message
    assert 'write the time of the repair with its zone, such as "2026-05-01T12:00:00Z"' in finding.message
    assert len(finding.message) < 400


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1999-12-31T23:59:59Z"])
def test_time_of_before_2000_which_a_program_writes_that_has_none_is_no_repair(time: str):
    record = ObjectReader((GPU,)).node(note({"*": {"repairedAt": time}, TWO: {"repairedAt": "2000-01-01T00:00:00Z"}}))
    assert record.opinion == NodeOpinion(repaired={TWO: 946_684_800.0})
    (finding,) = record.findings
    assert f'"*" has the repairedAt "{time}", which is before the year 2000: write the time of the repair' in finding.message


def test_value_that_is_none_costs_no_repair():
    record = ObjectReader((GPU,)).node(note({ONE: {"value": 7, "repairedAt": "2026-05-01T12:00:00Z"}}))
    assert record.opinion == NodeOpinion(repaired={ONE: NOON})
    assert ["has the value 7" in finding.message for finding in record.findings] == [True]


def test_repair_is_of_the_cards_that_are_named_and_the_latest_counts():
    cards = [CardKey("n", "GPU-a"), CardKey("n", "GPU-b", "1"), CardKey("m", "GPU-a"), CardKey("o", "GPU-a")]
    of_nodes = {"n": NodeOpinion(repaired={"GPU-a": 3.0, "*": 2.0}), "m": NodeOpinion(repaired={"GPU-a": 1.0, "*": 2.0})}
    assert repairs_of(of_nodes, cards) == {cards[0]: 3.0, cards[1]: 2.0, cards[2]: 2.0}
    both = of_nodes["n"].joined(of_nodes["m"])
    assert both.repaired == {"GPU-a": 3.0, "*": 2.0}


# -- to which cards it applies ----------------------------------------------------------------------------------------


def test_what_is_said_of_a_node_is_said_of_all_its_cards_and_the_worst_counts():
    cards = [CardKey("n", "GPU-a"), CardKey("n", "GPU-b", "1"), CardKey("m", "GPU-c"), CardKey("o", "GPU-a")]
    bad, doubtful, worst = Opinion(0.2, "bad"), Opinion(0.5, "doubtful"), Opinion(0.1, "worst")
    of_nodes = {"n": NodeOpinion(doubtful, {"GPU-a": bad, "GPU-b": Opinion(0.9, "fine")}), "m": NodeOpinion(worst)}
    assert opinions_of(of_nodes, cards) == {cards[0]: bad, cards[1]: doubtful, cards[2]: worst}


def test_capacity_takes_a_card_out_of_which_others_say_that_it_is_bad():
    cards = cards_of(8)
    of_nodes = {cards[3].node: NodeOpinion(cards={cards[3].uuid: Opinion(0.0, "it smokes")})}
    capacity = Capacity()
    capacity.observe(poll_of(cards, START, IDLE), opinions=opinions_of(of_nodes, cards))
    table = capacity.table(START)
    failed = [(card.card, card.evidence) for card in table if card.state is State.FAILED]
    assert failed == [(cards[3], "it smokes")]


def test_opinion_survives_the_way_from_the_worker_that_reads_lists():
    record = ObjectReader((GPU,)).node(note({ONE: {"value": 0}}))
    assert pickle.loads(pickle.dumps(record)) == record  # noqa: S301


# -- configured -------------------------------------------------------------------------------------------------------


def configured(folder: Path, text: str) -> ObjectReader:
    path = folder / "config.yaml"
    path.write_text(text)
    return Config.load(path).reader()


EVIDENCE = """
capacity:
  evidence:
  - label: example.com/superbench
    values: {passed: 1, defective: 0}
  - label: example.com/score
  - condition: GpuBurnFailed
    values: {True: 0.3}
  - taint: example.com/slow
    values: {NoSchedule: 0.4}
  - label: autopilot.ibm.com/gpuhealth
    values: {WARN: 0.8}
"""


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (node({"example.com/superbench": "defective"}), 0.0),
        (node({"example.com/superbench": "Passed"}), None),
        (node({"example.com/score": "0.7"}), 0.7),
        (node(annotations={"example.com/score": "1"}), None),
        (node(conditions=[condition("GpuBurnFailed")]), 0.3),
        (node(taints=[{"key": "example.com/slow", "effect": "NoSchedule"}]), 0.4),
        (node({AUTOPILOT: "WARN"}), 0.8),
        (node(conditions=[condition("GpuMemWatch")]), 0.0),
    ],
)
def test_configuration_names_what_else_says_something(tmp_path: Path, raw: Raw, value: float | None):
    every = said(raw, configured(tmp_path, EVIDENCE)).every
    assert (every.value if every else None) == value


def test_number_that_is_none_is_told(tmp_path: Path):
    reader = configured(tmp_path, EVIDENCE)
    for text in ("1.5", "much", "nan", "-1"):
        (finding,) = reader.node(node({"example.com/score": text})).findings
        assert "none of a number from 0 to 1" in finding.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("capacity: {evidence: yes}", "capacity.evidence: True must be a list"),
        ("capacity: {evidence: [5]}", "capacity.evidence[0]: 5 must name one of label, condition, taint"),
        ("capacity: {evidence: [{values: {a: 0}}]}", "must name one of label, condition, taint"),
        ("capacity: {evidence: [{label: a, taint: b}]}", "must name one of label, condition, taint"),
        ("capacity: {evidence: [{label: a, valeus: {}}]}", "capacity.evidence[0].valeus: unknown; known are label"),
        ("capacity: {evidence: [{label: 5}]}", "capacity.evidence[0].label: 5 must be a text that is not empty"),
        ("capacity: {evidence: [{label: ''}]}", "capacity.evidence[0].label: '' must be a text that is not empty"),
        ("capacity: {evidence: [{condition: a}]}", "capacity.evidence[0].values: None must say what each value means"),
        ("capacity: {evidence: [{label: a, values: {}}]}", "capacity.evidence[0].values: {} must say what each value means"),
        ("capacity: {evidence: [{label: a, values: {b: 2}}]}", "capacity.evidence[0].values.b: 2 must be a number from 0"),
        ("capacity: {evidence: [{label: a, values: {b: .nan}}]}", "capacity.evidence[0].values.b: nan must be a number from 0"),
        ("capacity: {evidence: [{label: a, values: {yes: 1}}]}", "values: True must be a text: put it in quotes"),
        ("capacity: {evidence: [{condition: a, values: {1: 1}}]}", "values: 1 must be a text: put it in quotes"),
    ],
)
def test_bad_evidence_is_refused_with_path_and_fix(tmp_path: Path, text: str, says: str):
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path, text)
    assert says in str(caught.value)


# -- slices and what is current ---------------------------------------------------------------------------------------


def slice_of(name: str, *devices: Raw, node_name: str = "n", generation: int = 1) -> Raw:
    spec = {"driver": "gpu.nvidia.com", "nodeName": node_name, "devices": list(devices)}
    return {"metadata": {"name": name}, "spec": {**spec, "pool": {"name": node_name, "generation": generation}}}


def device(uuid: str, effect: str = "", **more: str) -> Raw:
    attributes = {"type": {"string": "gpu"}, "uuid": {"string": uuid}, **{key: {"string": text} for key, text in more.items()}}
    taints = [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": effect}] if effect else []
    return {"name": "gpu-0", "attributes": attributes, "taints": taints}


def slices(*raw: Raw) -> list[Any]:
    return slice_page(json.dumps({"metadata": {"resourceVersion": "1"}, "items": raw}).encode()).items


def test_cards_that_a_driver_taints_are_bad_and_the_others_are_not():
    opinions = NodeOpinions()
    SliceSink(opinions).replace(slices(slice_of("s", device(ONE, "NoSchedule"), device(TWO, "None"), device("GPU-3"))))
    bad = Opinion(0.0, "its DRA driver gpu.nvidia.com keeps pods off it: taint gpu.nvidia.com/xid")
    assert opinions.current() == {"n": NodeOpinion(cards={ONE: bad})}


def test_taint_of_a_slice_of_a_card_is_of_the_card():
    split = device("MIG-1", "NoExecute", parentUUID=ONE)
    split["attributes"]["type"] = {"string": "mig"}
    opinions = NodeOpinions()
    SliceSink(opinions).replace(slices(slice_of("s", split)))
    assert list(opinions.current()["n"].cards) == [ONE]


def test_slices_that_change_and_go_take_their_taints_along():
    opinions = NodeOpinions()
    sink = SliceSink(opinions)
    sink.replace(slices(slice_of("a", device(ONE, "NoSchedule"))))
    sink.changed(slice_of("b", device(TWO, "NoExecute"), node_name="m"))
    assert set(opinions.current()) == {"n", "m"}
    sink.changed(slice_of("a", device(ONE)))
    assert set(opinions.current()) == {"m"}
    sink.gone(slice_of("b"))
    sink.gone(slice_of("b"))
    assert opinions.current() == {}


def test_slice_of_an_older_generation_does_not_count():
    opinions = NodeOpinions()
    SliceSink(opinions).replace(slices(slice_of("old", device(ONE, "NoSchedule")), slice_of("new", device(ONE), generation=2)))
    assert opinions.current() == {}


def test_what_nodes_and_slices_say_is_taken_together():
    opinions = NodeOpinions()
    doubtful, mild = Opinion(0.5, "doubtful"), Opinion(0.9, "mild")
    opinions.take("n", NodeOpinion(doubtful, {ONE: mild, TWO: mild}))
    SliceSink(opinions).replace(slices(slice_of("s", device(ONE, "NoSchedule"))))
    current = opinions.current()["n"]
    assert current.every == doubtful
    assert {uuid: opinion.value for uuid, opinion in current.cards.items()} == {ONE: 0.0, TWO: 0.9}


def test_node_that_says_nothing_any_more_is_not_kept():
    opinions = NodeOpinions()
    for name in ("a", "b", "c"):
        opinions.take(name, NodeOpinion(Opinion(0.5, "doubtful")))
    opinions.take("a", SAYS_NOTHING)
    opinions.take("never seen", SAYS_NOTHING)
    opinions.forget_others({"a", "b"})
    assert set(opinions.current()) == {"b"}


class Groups:
    def __init__(self, answer: Raw | Exception) -> None:
        self.answer = answer

    def get(self, path: str) -> Raw:
        if isinstance(self.answer, Exception):
            raise self.answer
        assert path == "/apis/resource.k8s.io"
        return self.answer


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        ({"preferredVersion": {"version": "v1"}}, "/apis/resource.k8s.io/v1/resourceslices"),
        (KubernetesError("answered 404", 404), None),
        (KubernetesError("does not answer"), "/apis/resource.k8s.io/v1/resourceslices"),
        ({}, None),
        ({"preferredVersion": None}, None),
    ],
)
def test_slices_are_watched_where_they_are_served(answer: Raw | Exception, path: str | None):
    assert slices_path(cast("ApiServer", Groups(answer))) == path
