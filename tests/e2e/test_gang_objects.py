"""Groups whose pods say nothing but their group: what they are to be stands in objects of the API."""

from __future__ import annotations

from contextlib import AbstractContextManager

from deploy.local.api import Api, Object
from deploy.local.control_plane import ControlPlane
from deploy.local.workspace import Workspace
from tests.e2e.test_gang_examples import created
from tests.e2e.test_gangs import BOX, bound_of, each_gpu_once, known, names, running
from tests.e2e.test_topology import definition, installed

GROUP, VERSION = "scheduling.volcano.sh", "v1beta1"
VOLCANO = f"{GROUP}/{VERSION}"


def pod_groups(api: Api) -> AbstractContextManager[str]:
    """Serve PodGroups for a while."""
    crd = definition(GROUP, VERSION, "PodGroup", "podgroups")
    crd["spec"]["scope"] = "Namespaced"
    return installed(api, crd)


def pod_group(name: str, members: int, **topology: object) -> Object:
    """Return a PodGroup of Volcano."""
    spec = {"minMember": members, "networkTopology": topology}
    return {"apiVersion": VOLCANO, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def add_pods(own: Workspace, group: str, members: int) -> list[str]:
    """Create pods that name their group and say nothing else of it."""
    for pod in names(group, members):
        own.add_pod(pod, own.pod_spec(8), {"scheduling.k8s.io/group-name": group})
    return names(group, members)


def test_tier_of_a_volcano_pod_group_keeps_a_group_pending_that_does_not_fit_in_it(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    own = workspace
    nodes = [own.add_nodes(BOX, fabric=("r1", "b1"))[0] for _ in range(3)] + own.add_nodes(BOX, 2, fabric=("r2", "b1"))
    own.wait_untainted()
    known(control_plane, nodes)
    narrow, wide = (
        pod_group("narrow", 4, mode="hard", highestTierAllowed=1),
        pod_group("wide", 4, mode="hard", highestTierAllowed=2),
    )
    with pod_groups(own.api):
        created(own, narrow, "podgroups")
        waiting = add_pods(own, "narrow", 4)
        text = own.wait_event(waiting[0], "; 4 fit in")["message"]
        assert "3 of 4 fit in" in text
        assert "not close enough; a node added to" in text
        assert "r1 would help; a cluster autoscaler cannot see this" in text
        # The same pods in a group that may have both racks.
        created(own, wide, "podgroups")
        assert each_gpu_once(running(own, add_pods(own, "wide", 4)))
        assert bound_of(own, waiting) == set()


def test_wish_that_cannot_be_used_is_an_event_on_one_pod_of_the_group(control_plane: ControlPlane, workspace: Workspace) -> None:
    own = workspace
    known(control_plane, own.add_nodes(BOX, 2))
    for pod in names("train", 2):
        said = {"pyscheduler.io/group": "train", "pyscheduler.io/min-members": "2", "pyscheduler.io/wait": "soon"}
        own.add_pod(pod, own.pod_spec(8), said)
    running(own, names("train", 2))
    event = own.api.wait_for(f"/api/v1/namespaces/{own.name}/events", lambda event: event.get("reason") == "GPUGroupProblem")
    assert event["type"] == "Warning"
    assert event["message"] == (
        f"its group {own.name}/train: pyscheduler.io/wait is 'soon': write a duration, such as 90s, 10m or 1h30m; it is left out of use"
    )
    told = [each for pod in names("train", 2) for each in own.events(pod) if each["reason"] == "GPUGroupProblem"]
    assert len(told) == 1
