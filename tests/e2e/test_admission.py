"""The admission policy in deploy/policy: nobody but the Binding writes what the scheduler chose, and nothing else is hindered."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from deploy.local import admission, users
from deploy.local.api import Api, Object
from deploy.local.control_plane import ControlPlane
from deploy.local.devices import GPUS
from deploy.local.errors import ApiError
from deploy.local.scheduler_config import DEFAULT_PROFILE
from deploy.local.workspace import Workspace, annotation, has_condition
from tests.e2e.test_placement import PLACEMENT, gpus

# As design and README name them; the policy must cover each.
OUTPUTS = ["pyscheduler.io/gpus", "pyscheduler.io/placement", "pyscheduler.io/rank", "pyscheduler.io/relative-speed"]
POLICY = "ValidatingAdmissionPolicy 'pyscheduler-output-annotations'"
ALLOWED = {"team": "vision", "pyscheduler.io/group": "train", "pyscheduler.io/gpus-wanted": "4", "example.com/gpus": "[]"}
# Where a pod's annotations are written through, besides the pod itself.
PARTS = ["", "/status"]


@pytest.fixture(scope="module")
def own(control_plane: ControlPlane) -> Iterator[Workspace]:
    """A workspace under the policy, with one node and a pod that was forged before the policy came."""
    with Workspace(control_plane.api, "admission") as workspace:
        workspace.add_nodes("hgx-h100")
        workspace.add_pod("forged-before", workspace.pod_spec(scheduler="nobody"), {GPUS: "{}"})
        try:
            admission.enforce(control_plane.api)
            yield workspace
        finally:
            admission.lift(control_plane.api)
    control_plane.check()


@pytest.fixture(scope="module")
def placed(own: Workspace) -> Object:
    """A pod that the scheduler placed under the policy."""
    own.add_pod("placed", own.pod_spec(2), {"team": "vision"})
    return own.wait_phase("placed", "Running")


def annotate(api: Api, path: str, annotations: dict[str, str | None] | None) -> Object:
    return api.patch(path, {"metadata": {"annotations": annotations}})


def assert_annotations_stand(own: Workspace, pod: Object) -> None:
    assert own.pod(pod["metadata"]["name"])["metadata"]["annotations"] == pod["metadata"]["annotations"]


# Denied


@pytest.mark.parametrize("key", OUTPUTS)
def test_pod_cannot_be_created_with_an_output(own: Workspace, key: str) -> None:
    with pytest.raises(ApiError) as refusal:
        own.add_pod("forged", own.pod_spec(1), {"team": "vision", key: "{}"})
    assert (refusal.value.status, POLICY in str(refusal.value)) == (403, True)
    assert f"only the scheduler writes {key}, " in str(refusal.value)
    assert "remove it from the pod, or from the template" in str(refusal.value)


def test_all_that_is_to_be_removed_is_named_at_once(own: Workspace) -> None:
    with pytest.raises(ApiError, match=", ".join(OUTPUTS)):
        own.add_pod("forged", own.pod_spec(1), dict.fromkeys(OUTPUTS, ""))


def test_pod_that_is_bound_by_its_maker_is_denied_too(own: Workspace) -> None:
    spec = {**own.pod_spec(1, scheduler="nobody"), "nodeName": "anywhere"}
    with pytest.raises(ApiError, match=POLICY):
        own.add_pod("forged", spec, {GPUS: '{"main": ["index:0"]}'})


def test_job_whose_template_has_an_output_is_told_so_by_an_event(own: Workspace) -> None:
    own.add_indexed_job("forged", 1, own.pod_spec(1), {GPUS: "{}"})
    event = own.wait_event("forged", POLICY)
    assert event["reason"] == "FailedCreate"
    assert "or from the template" in event["message"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("value", ['{"main": []}', "", None])
@pytest.mark.parametrize("key", OUTPUTS[:2])
def test_output_of_a_bound_pod_cannot_be_changed_or_removed(
    own: Workspace, placed: Object, key: str, value: str | None, part: str
) -> None:
    with pytest.raises(ApiError, match=POLICY) as refusal:
        annotate(own.api, f"{own.pods}/placed{part}", {key: value})
    assert "leave it as it is; for other GPUs delete the pod and create it anew" in str(refusal.value)
    assert_annotations_stand(own, placed)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("key", OUTPUTS[2:])
def test_output_cannot_be_added_to_a_bound_pod(own: Workspace, placed: Object, key: str, part: str) -> None:
    with pytest.raises(ApiError, match=POLICY):
        annotate(own.api, f"{own.pods}/placed{part}", {key: "0"})
    assert_annotations_stand(own, placed)


@pytest.mark.parametrize("part", PARTS)
def test_output_cannot_be_added_to_a_pod_that_waits(own: Workspace, part: str) -> None:
    own.add_pod(f"waits{part[1:]}", own.pod_spec(scheduler="nobody"))
    with pytest.raises(ApiError, match=POLICY):
        annotate(own.api, f"{own.pods}/waits{part[1:]}{part}", {GPUS: "{}"})


def test_outputs_cannot_be_removed_with_all_other_annotations(own: Workspace, placed: Object) -> None:
    with pytest.raises(ApiError, match=", ".join(OUTPUTS[:2])):
        annotate(own.api, f"{own.pods}/placed", None)
    assert_annotations_stand(own, placed)


@pytest.mark.parametrize("part", PARTS)
def test_output_cannot_be_replaced_with_the_whole_pod(own: Workspace, placed: Object, part: str) -> None:
    pod = own.pod("placed")
    pod["metadata"]["annotations"] = {**pod["metadata"]["annotations"], GPUS: "{}"}
    with pytest.raises(ApiError, match=POLICY):
        own.api._request("PUT", f"{own.pods}/placed{part}", pod)
    assert_annotations_stand(own, placed)


def test_output_cannot_be_changed_along_with_ephemeral_containers(own: Workspace, placed: Object) -> None:
    """The server of today drops the annotation; one that does not would have the policy deny it."""
    changes = {
        "metadata": {"annotations": {GPUS: "{}"}},
        "spec": {"ephemeralContainers": [{"name": "debug", "image": "pause", "targetContainerName": "main"}]},
    }
    path = f"{own.pods}/placed/ephemeralcontainers"
    changed = own.api._request("PATCH", path, changes, "application/strategic-merge-patch+json")
    assert [container["name"] for container in changed["spec"]["ephemeralContainers"]] == ["debug"]
    assert_annotations_stand(own, placed)


@pytest.mark.parametrize("user", [users.SCHEDULER, users.SIMULATOR, users.KWOK], ids=["scheduler", "simulator", "kwok"])
def test_components_are_denied_as_everybody(
    control_plane: ControlPlane, own: Workspace, placed: Object, user: users.User
) -> None:
    """All three may patch pods/status."""
    with pytest.raises(ApiError, match=POLICY):
        annotate(control_plane.api_of(user), f"{own.pods}/placed/status", {GPUS: "{}"})
    assert_annotations_stand(own, placed)


# Not hindered


def test_binding_brings_the_outputs(own: Workspace, placed: Object) -> None:
    assert len(gpus(placed)) == 2
    assert json.loads(annotation(placed, PLACEMENT) or "{}")["level"] == "node"


def test_placed_pod_runs_and_its_node_reports(own: Workspace, placed: Object) -> None:
    assert has_condition(placed, "Ready")
    uid = placed["metadata"]["uid"]
    report = own.wait_in_use(placed["spec"]["nodeName"], lambda use: uid in use)
    assert report[uid]["main"] == gpus(placed)


def test_job_runs_to_its_end(own: Workspace) -> None:
    own.add_indexed_job("train", 2, own.pod_spec(2), {"pyscheduler.io/simulate": '{"runSeconds": 0.1}'})
    own.wait_job("train", "Complete")


def test_pod_of_another_scheduler_runs(own: Workspace) -> None:
    own.add_pod("default", own.pod_spec(1, scheduler=DEFAULT_PROFILE))
    own.wait_phase("default", "Running")


def test_all_other_annotations_may_be_set_and_changed(own: Workspace) -> None:
    own.add_pod("annotated", own.pod_spec(scheduler="nobody"), ALLOWED)
    for part in PARTS:
        annotate(own.api, f"{own.pods}/annotated{part}", {**dict.fromkeys(ALLOWED, part), "new": part})
        assert own.pod("annotated")["metadata"]["annotations"] == {**dict.fromkeys(ALLOWED, part), "new": part}
    annotate(own.api, f"{own.pods}/annotated", None)
    assert not own.pod("annotated")["metadata"].get("annotations")


def test_bound_pod_may_be_labelled_and_deleted(own: Workspace) -> None:
    own.add_pod("short", own.pod_spec(1))
    own.wait_phase("short", "Running")
    own.api.patch(f"{own.pods}/short", {"metadata": {"labels": {"team": "vision"}, "finalizers": ["example.com/held"]}})
    own.api.delete(f"{own.pods}/short")
    own.api.patch(f"{own.pods}/short", {"metadata": {"finalizers": None}})
    own.api.wait_gone(own.pods, "short")


def test_pod_that_was_forged_before_the_policy_came_can_be_written_and_deleted(own: Workspace) -> None:
    annotate(own.api, f"{own.pods}/forged-before/status", {"team": "vision"})
    own.api.patch_status(f"{own.pods}/forged-before", {"phase": "Failed"})
    own.delete_pod("forged-before")
