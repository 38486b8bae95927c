"""The device manager of a simulated node: who gets which GPU, and when it is free again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.local.devices import Containers, DeviceManager, GpuPod, Instructions, Refusal

RESOURCE = "nvidia.com/gpu"
UUIDS = tuple("abcdefgh")


def container(name: str, gpus: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {RESOURCE: str(gpus)}} if gpus else {}, **more}


def pod(uid: str = "u1", *containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), gpus: Any = None) -> GpuPod:
    annotations = {} if gpus is None else {"pyscheduler.io/gpus": gpus if isinstance(gpus, str) else json.dumps(gpus)}
    item = {
        "metadata": {"uid": uid, "annotations": annotations},
        "spec": {"containers": list(containers) or [container("main", 2)], "initContainers": list(init)},
    }
    asked = GpuPod.of(item, RESOURCE)
    assert asked is not None
    return asked


def admitted(manager: DeviceManager, asked: GpuPod) -> Containers:
    assert manager.admit(asked) is None
    return manager.held[asked.uid]


def test_pod_without_gpus_is_none_of_its_business() -> None:
    item = {"metadata": {"uid": "u1"}, "spec": {"containers": [container("main", 0)]}}
    assert GpuPod.of(item, RESOURCE) is None


def test_pod_of_another_resource_is_none_of_its_business() -> None:
    item = {"metadata": {"uid": "u1"}, "spec": {"containers": [container("main", 1)]}}
    assert GpuPod.of(item, "amd.com/gpu") is None


def test_unannotated_pod_gets_the_first_free_gpus() -> None:
    manager = DeviceManager(UUIDS)
    assert admitted(manager, pod("u1")) == {"main": ("a", "b")}
    assert admitted(manager, pod("u2", container("main", 1), container("side", 2))) == {"main": ("c",), "side": ("d", "e")}


def test_init_container_uses_the_devices_of_the_others() -> None:
    manager = DeviceManager(UUIDS)
    held = admitted(manager, pod("u1", container("main", 2), init=(container("warm", 3),)))
    assert held == {"main": ("a", "b"), "warm": ("a", "b", "c")}
    assert manager.free == ("d", "e", "f", "g", "h")


def test_sidecar_has_devices_of_its_own() -> None:
    asked = pod("u1", container("main", 1), init=(container("side", 1, restartPolicy="Always"),))
    assert admitted(DeviceManager(UUIDS), asked) == {"main": ("a",), "side": ("b",)}


@pytest.mark.parametrize("named", [["c", "f"], ["index:2", "index:5"]])
def test_annotated_pod_gets_exactly_those(named: list[str]) -> None:
    assert admitted(DeviceManager(UUIDS), pod(gpus={"main": named})) == {"main": ("c", "f")}


REFUSED = {
    "taken": ({"main": ["a", "c"]}, "devices that pyscheduler.io/gpus names are not free: a"),
    "of another node": ({"main": ["c", "z"]}, "not free: z"),
    "too few": ({"main": ["c"]}, "names {'main': 1} devices, the containers ask for {'main': 2}"),
    "of another container": ({"side": ["c", "d"]}, "names {'side': 2}"),
    "no such index": ({"main": ["index:2", "index:8"]}, "the node has 8 GPUs"),
    "no JSON": ("{", "cannot be used"),
    "no object": ("[]", "cannot be used (not a JSON object)"),
}


@pytest.mark.parametrize(("gpus", "reason"), REFUSED.values(), ids=REFUSED)
def test_annotation_that_cannot_be_followed_is_refused(gpus: Any, reason: str) -> None:
    manager = DeviceManager(UUIDS, held={"u0": {"main": ("a", "b")}})
    refusal = manager.admit(pod(gpus=gpus))
    assert isinstance(refusal, Refusal)
    assert reason in refusal.message
    assert manager.held == {"u0": {"main": ("a", "b")}}


def test_too_large_a_pod_is_refused_as_the_kubelet_does() -> None:
    manager = DeviceManager(UUIDS, held={"u0": {"main": UUIDS[:7]}})
    refusal = manager.admit(pod())
    assert refusal is not None
    assert "Requested: 2, Available: 1, which is unexpected" in refusal.message


def test_admitting_again_changes_nothing() -> None:
    manager = DeviceManager(UUIDS)
    before = dict(admitted(manager, pod()))
    manager.instructions = Instructions(refuse_pods=True)
    assert admitted(manager, pod()) == before


def test_devices_are_free_again_only_after_the_delay() -> None:
    manager = DeviceManager(UUIDS)
    admitted(manager, pod())
    assert manager.end("u1", now_s=100, delay_s=5) == 105
    assert not manager.release(now_s=104.9)
    assert "u1" in manager.held
    assert manager.release(now_s=105)
    assert manager.free == UUIDS


def test_second_end_does_not_prolong_the_first() -> None:
    manager = DeviceManager(UUIDS)
    admitted(manager, pod())
    manager.end("u1", now_s=100, delay_s=5)
    assert manager.end("u1", now_s=103, delay_s=5) is None
    assert manager.release(now_s=105)


def test_end_of_a_pod_without_devices_is_nothing() -> None:
    manager = DeviceManager(UUIDS)
    assert manager.end("stranger", now_s=0, delay_s=0) is None
    assert not manager.release(now_s=1)


def test_node_may_hold_devices_longer_than_others() -> None:
    manager = DeviceManager(UUIDS, Instructions(release_s=60), held={"u1": {"main": ("a",)}})
    assert manager.end("u1", now_s=0, delay_s=5) == 60


def test_lost_gpus_are_not_handed_out_and_their_pod_keeps_them() -> None:
    manager = DeviceManager(UUIDS, Instructions(gpus=2), held={"u0": {"main": ("a", "h")}})
    assert manager.free == ("b",)
    assert manager.admit(pod(gpus={"main": ["b", "c"]})) is not None
    assert manager.held == {"u0": {"main": ("a", "h")}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, Instructions()),
        ("{}", Instructions()),
        ('{"ready": false}', Instructions()),
        ('{"gpus": 0}', Instructions(gpus=0)),
        ('{"gpus": 6, "refusePods": true, "releaseSeconds": 1.5}', Instructions(gpus=6, refuse_pods=True, release_s=1.5)),
    ],
)
def test_instructions_are_read(text: str | None, expected: Instructions) -> None:
    assert Instructions.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["not-ready", "[]", '{"gpus": "many"}', '{"gpus": -1}', '{"releaseSeconds": "long"}', '{"gpu": 6}']
)
def test_bad_instructions_are_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        Instructions.parse(text)
