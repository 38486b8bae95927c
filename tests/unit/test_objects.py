"""Kubernetes objects to the words of the core."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.local import machines
from pyscheduler.core.gangs.membership import GangKey, ObjectRef
from pyscheduler.core.model import ContainerKind
from pyscheduler.readers import node_document
from pyscheduler.readers.fabric.label_families import Level
from pyscheduler.readers.fabric.rules import PoolConfig, Rules
from pyscheduler.readers.lists import pod_page
from pyscheduler.readers.objects import COUNT_MAX, ObjectReader

LEVELS = (Level("rack", ("tier-0",)), Level("hall", ("tier-1",)))
READER = ObjectReader(("nvidia.com/gpu", "amd.com/gpu"), Rules((PoolConfig("all", LEVELS),)))


def _pod(spec: dict[str, Any], annotations: dict[str, str] | None = None, status: dict[str, Any] | None = None) -> dict[str, Any]:
    metadata = {"uid": "u", "namespace": "ns", "name": "p", "annotations": annotations}
    return {"metadata": metadata, "spec": spec, "status": status or {"phase": "Pending"}}


def _container(gpus: object, resource: str = "nvidia.com/gpu", field: str = "limits", **more: Any) -> dict[str, Any]:
    return {"name": "main", "resources": {field: {resource: gpus, "cpu": "1"}}, **more}


@pytest.mark.parametrize("quantity", ["2", 2])
def test_request_is_read_as_text_and_as_number(quantity: object) -> None:
    pod = READER.pod(_pod({"containers": [_container(quantity)]}))
    assert pod is not None
    assert [(c.gpus, c.resource, c.kind) for c in pod.containers] == [(2, "nvidia.com/gpu", ContainerKind.APP)]


def test_request_stands_under_limits_or_requests() -> None:
    pod = READER.pod(_pod({"containers": [_container("1", field="requests")]}))
    assert pod is not None
    assert pod.containers[0].gpus == 1


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"containers": [{"name": "main"}]}, id="no resources"),
        pytest.param({"containers": [_container("0")]}, id="zero GPUs"),
        pytest.param({"containers": [_container("1", "nvidia.com/mig-1g.5gb")]}, id="a MIG slice"),
        pytest.param({"containers": [_container("1", "nvidia.com/gpu.shared")]}, id="a time-sliced replica"),
    ],
)
def test_pods_that_ask_for_no_whole_gpu_are_left_out(spec: dict[str, Any]) -> None:
    assert READER.pod(_pod(spec)) is None


def test_init_containers_come_first_and_sidecars_are_told_apart() -> None:
    spec = {
        "initContainers": [_container("1"), _container("1", restartPolicy="Always")],
        "containers": [_container("2")],
    }
    pod = READER.pod(_pod(spec))
    assert pod is not None
    assert [c.kind for c in pod.containers] == [ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP]


def test_bound_pod_has_node_annotation_and_time_of_binding() -> None:
    status = {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:01:40Z"}],
    }
    annotations = {"pyscheduler.io/gpus": '{"main": ["GPU-a"]}'}
    pod = READER.pod(_pod({"containers": [_container("1")], "nodeName": "n1"}, annotations, status))
    assert pod is not None
    assert (pod.node, pod.gpus, pod.bound_at, pod.finished) == ("n1", {"main": ("GPU-a",)}, 100.0, False)


@pytest.mark.parametrize(
    "text", ["", "no json", "[" * 20_000, "[]", '{"main": "GPU-a"}', '{"main": [1]}', '{"main": [""]}', "null"]
)
def test_unreadable_gpu_annotation_is_none_never_a_guess(text: str) -> None:
    pod = READER.pod(_pod({"containers": [_container("1")]}, {"pyscheduler.io/gpus": text}))
    assert pod is not None
    assert pod.gpus is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_terminal_phases_are_finished(phase: str) -> None:
    pod = READER.pod(_pod({"containers": [_container("1")]}, status={"phase": phase}))
    assert pod is not None
    assert pod.finished


JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j", "controller": True}
OTHER = {"apiVersion": "example.com/v1", "kind": "Queue", "name": "q", "uid": "q"}


def _member(spec: dict[str, Any], reader: ObjectReader = READER, **annotations: str) -> Any:
    raw = _pod(
        {"schedulerName": "gpu-topology", **spec}, {f"pyscheduler.io/{k.replace('_', '-')}": v for k, v in annotations.items()}
    )
    raw["metadata"] |= {"labels": {"pyscheduler.io/group": "g", "pyscheduler.io/wait": "9m"}, "ownerReferences": [OTHER, JOB]}
    return reader.pod(raw)


def test_member_of_a_group_has_its_place_there_and_its_settings():
    spec = {"containers": [_container("1")], "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    pod = _member(spec, wait="5m", max_link="NV12", gpus="{}", placement="{}", rank="1", relative_speed="1")
    assert pod.gang
    assert pod.gated
    assert (pod.membership.gang, pod.membership.wait_s) == (GangKey("ns", "g", "pyscheduler"), 300.0)
    assert pod.membership.spec_from == ObjectRef("batch/v1", "Job", "ns", "train")
    assert pod.settings == {"group": "g", "wait": "5m", "max-link": "NV12"}


def test_pod_of_no_group_has_neither_membership_nor_settings():
    pod = READER.pod(_pod({"containers": [_container("1")], "schedulingGates": None}, {"pyscheduler.io/max-link": "NV12"}))
    assert pod is not None
    assert (pod.gang, pod.membership, pod.settings, pod.gated) == (False, None, {}, False)


def test_member_without_gpus_is_told_if_this_scheduler_places_it():
    ours, launcher = ObjectReader(("nvidia.com/gpu",), scheduler="gpu-topology"), {"containers": [{"name": "main"}]}
    pod = _member(launcher, ours)
    assert (pod.containers, pod.membership.gang.name) == ((), "g")
    assert _member({**launcher, "schedulerName": "default-scheduler"}, ours) is None
    assert _member(launcher) is None
    assert ours.pod(_pod({**launcher, "schedulerName": "gpu-topology"})) is None


def test_page_of_pods_keeps_members_without_gpus():
    launcher = _pod({"schedulerName": "gpu-topology", "containers": [{"name": "main"}]}, {"pyscheduler.io/group": "g"})
    page = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [launcher]}
    reader = ObjectReader(("nvidia.com/gpu",), scheduler="gpu-topology")
    assert len(pod_page(reader, json.dumps(page, separators=(",", ":")).encode()).items) == 1


def _node(
    allocatable: dict[str, str], annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None
) -> dict[str, Any]:
    return {
        "metadata": {"name": "n1", "labels": labels, "annotations": annotations},
        "status": {"allocatable": allocatable},
    }


def test_node_has_resource_count_and_place() -> None:
    node = READER.node(_node({"amd.com/gpu": "4", "cpu": "8"}, labels={"tier-0": "l", "tier-1": "s"}))
    assert (node.resource, node.allocatable, node.capacity) == ("amd.com/gpu", 4, 4)
    assert node.place.path == (("rack", "l"), ("hall", "s"))
    assert node.levels == ("rack", "hall")


@pytest.mark.parametrize(
    ("listed", "addresses"),
    [
        (
            [
                {"type": "InternalIP", "address": "10.0.0.7"},
                {"type": "InternalIP", "address": "fd00::7"},
                {"type": "Hostname", "address": "n1"},
                {"type": "ExternalIP", "address": "10.0.0.7"},
                {"type": "InternalDNS", "address": "n1.example.com"},
            ],
            ("10.0.0.7", "fd00::7", "n1.example.com"),
        ),
        ([{}, None, "10.0.0.7", {"address": 5}, {"address": ""}, {"address": "10.0.0.8"}], ("10.0.0.8",)),
        (None, ()),
        ("10.0.0.7", ()),
    ],
)
def test_node_has_the_addresses_that_are_not_its_name(listed: object, addresses: tuple[str, ...]) -> None:
    raw = {"metadata": {"name": "n1"}, "status": {"addresses": listed}}
    assert READER.node(raw).addresses == addresses


def test_node_has_its_own_document() -> None:
    text = json.dumps(machines.document("hgx-h100", "n1"))
    node = READER.node(_node({"nvidia.com/gpu": "8"}, {"pyscheduler.io/topology": text}))
    assert node.document == node_document.parse(text)
    assert node.preset is None


def test_unusable_document_is_an_error_that_says_what_follows() -> None:
    node = READER.node(
        _node({"nvidia.com/gpu": "8"}, {"pyscheduler.io/topology": "{"}, labels={"nvidia.com/gpu.product": "NVIDIA-H200"})
    )
    assert node.document is None
    assert [(f.code, f.node) for f in node.findings if f.code == "document-unusable"] == [("document-unusable", "n1")]
    assert "by number only" in node.findings[0].message


def test_product_label_gives_a_node_without_document_its_preset() -> None:
    node = READER.node(_node({"nvidia.com/gpu": "8"}, labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}))
    assert node.preset == "hgx-h100"
    assert node.document is not None
    assert {str(link) for link in node.document.links.values()} == {"NV18"}


def test_sick_gpus_do_not_change_what_machine_a_node_is() -> None:
    raw = _node({"nvidia.com/gpu": "6"}, labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})
    raw["status"]["capacity"] = {"nvidia.com/gpu": "8"}
    assert READER.node(raw).preset == "hgx-h100"


def test_partitioned_cards_have_no_preset() -> None:
    raw = _node({"nvidia.com/gpu": "4"}, labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})
    raw["status"]["capacity"] = {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "28"}
    assert READER.node(raw).document is None


def test_preset_label_goes_before_the_product() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "pyscheduler.io/preset": "dgx-h100"}
    assert READER.node(_node({"nvidia.com/gpu": "8"}, labels=labels)).preset == "dgx-h100"


@pytest.mark.parametrize(("preset", "code"), [("dgx-9", "preset-unknown"), ("dgx-2", "preset-differs")])
def test_preset_that_cannot_be_is_an_error_and_the_node_is_counted(preset: str, code: str) -> None:
    node = READER.node(_node({"nvidia.com/gpu": "8"}, labels={"pyscheduler.io/preset": preset}))
    assert node.document is None
    assert code in [f.code for f in node.findings]


def test_empty_level_labels_are_missing() -> None:
    node = READER.node(_node({}, labels={"tier-0": "", "tier-1": "s"}))
    assert (node.place.path, node.resource, node.allocatable) == ((("hall", "s"),), "", 0)


def test_resource_with_capacity_wins_over_one_that_fell_to_zero() -> None:
    facts = READER.node(_node({"nvidia.com/gpu": "0", "amd.com/gpu": "2"}))
    assert (facts.resource, facts.allocatable) == ("amd.com/gpu", 2)


def test_agents_report_names_each_pods_devices_once() -> None:
    report = {"observed_at": "2026-01-01T00:00:00Z", "pods": {"u1": {"init": ["GPU-a"], "main": ["GPU-a", "GPU-b"]}}}
    facts = READER.node(_node({}, {"pyscheduler.io/in-use": json.dumps(report)}))
    assert facts.in_use == {"u1": ("GPU-a", "GPU-b")}
    assert facts.findings == ()


@pytest.mark.parametrize(
    "text", ["x", "[]", "{}", '{"pods": []}', '{"pods": {"u": ["GPU-a"]}}', '{"pods": {"u": {"c": "GPU-a"}}}']
)
def test_unreadable_report_is_unknown_and_told_never_empty(text: str) -> None:
    facts = READER.node(_node({}, {"pyscheduler.io/in-use": text}))
    assert facts.in_use is None
    assert "pyscheduler.io/in-use" in facts.findings[0].message


def test_page_of_pods_keeps_only_gpu_pods() -> None:
    page = {
        "metadata": {"resourceVersion": "7", "continue": "more"},
        "items": [_pod({"containers": [{"name": "web"}]}), _pod({"containers": [_container("1")]})],
    }
    read = pod_page(READER, json.dumps(page).encode())
    assert (len(read.items), read.token, read.version) == (1, "more", "7")


def test_absurd_quantities_are_bounded() -> None:
    for text in ("3000000001", "9" * 5000, "1G"):
        assert READER.node(_node({"nvidia.com/gpu": text})).allocatable == COUNT_MAX


def test_object_that_cannot_be_read_is_named_and_the_others_are_read() -> None:
    page = {
        "metadata": {"resourceVersion": "7"},
        "items": [{"metadata": {"name": "odd"}}, _pod({"containers": [_container("1")]})],
    }
    read = pod_page(READER, json.dumps(page).encode())
    assert len(read.items) == 1
    assert read.unread[0].startswith("odd: KeyError")


# Resources of which several units are one GPU.

VCUDA = "tencent.com/vcuda-core"
UNITS = ObjectReader(("nvidia.com/gpu", VCUDA), units_per_gpu={VCUDA: 100}, scheduler="gpu-topology")


def test_units_are_counted_as_whole_gpus() -> None:
    memory = {"name": "memory", "resources": {"limits": {"tencent.com/vcuda-memory": "60"}}}
    pod = UNITS.pod(_pod({"containers": [_container("200", VCUDA), memory, _container("3")]}))
    assert pod is not None
    assert [(c.resource, c.gpus) for c in pod.containers] == [(VCUDA, 2), ("nvidia.com/gpu", 3)]


@pytest.mark.parametrize(("units", "gpus"), [("800", 8), ("850", 8), ("99", 0), ("100000", 1000), ("9" * 5000, COUNT_MAX)])
def test_units_of_a_node_are_rounded_down_to_whole_gpus(units: str, gpus: int) -> None:
    node = UNITS.node({**_node({VCUDA: units}), "status": {"allocatable": {VCUDA: units}, "capacity": {VCUDA: units}}})
    assert (node.resource, node.capacity, node.allocatable) == (VCUDA, gpus, gpus)


@pytest.mark.parametrize(
    ("spec", "gpus"),
    [
        pytest.param({"containers": [_container("50", VCUDA)]}, [1], id="half of one"),
        pytest.param({"containers": [_container("250", VCUDA)]}, [3], id="two and a half"),
        pytest.param({"containers": [_container("200", VCUDA), _container("50", VCUDA)]}, [2, 1], id="beside whole ones"),
        pytest.param(
            {"initContainers": [_container("1", VCUDA)], "containers": [_container("2")]}, [1, 2], id="in an init container"
        ),
    ],
)
def test_pod_that_takes_part_of_a_card_holds_that_card_is_in_no_group_and_names_no_gpus(
    spec: dict[str, Any], gpus: list[int]
) -> None:
    pod = _member({**spec, "nodeName": "n1"}, UNITS, gpus='{"main": ["GPU-a"]}', rank="1")
    assert [c.gpus for c in pod.containers] == gpus
    assert (pod.gang, pod.gpus, pod.rank, pod.settings) == (False, None, None, {})


def test_pod_of_whole_cards_in_units_is_a_member_as_any_other() -> None:
    pod = _member({"containers": [_container("100", VCUDA)], "nodeName": "n1"}, UNITS, gpus='{"main": ["GPU-a"]}')
    assert (pod.gang, pod.gpus) == (True, {"main": ("GPU-a",)})


# Nodes whose GPUs the kubelet does not offer.


@pytest.mark.parametrize("allocatable", [{}, {"amd.com/gpu": "0"}, {"nvidia.com/gpu": "0"}])
def test_gpus_that_a_node_has_and_does_not_offer_are_its_capacity(allocatable: dict[str, str]) -> None:
    raw = _node(allocatable)
    raw["status"]["capacity"] = {"amd.com/gpu": "4", "nvidia.com/gpu": "0"}
    node = READER.node(raw)
    assert (node.resource, node.capacity, node.allocatable) == ("amd.com/gpu", 4, 0)


def test_label_by_which_ack_schedules_gpus_is_read() -> None:
    assert READER.node(_node({}, labels={"ack.node.gpu.schedule": "topology"})).gpu_schedule == "topology"
    assert READER.node(_node({})).gpu_schedule is None
