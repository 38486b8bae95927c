"""A resource of which 100 units are one card, with the real kube-scheduler."""

from __future__ import annotations

from deploy.local.control_plane import ControlPlane
from deploy.local.simulated_nodes import NODES
from deploy.local.workspace import Workspace, annotation
from tests.e2e.known_nodes import wait_known
from tests.e2e.test_placement import GPUS, PLACEMENT, gpus

VCUDA = "tencent.com/vcuda-core"


def test_units_are_placed_as_whole_cards_and_a_pod_that_takes_a_part_of_one_is_left_alone_and_counted(
    workspace: Workspace, control_plane: ControlPlane
) -> None:
    (node,) = workspace.add_nodes("hgx-h100")
    offered = {VCUDA: "800", "nvidia.com/gpu": None}
    workspace.api.patch_status(f"{NODES}/{node}", {"capacity": offered, "allocatable": offered})
    socket = control_plane.layout.socket
    known = wait_known(socket, node, lambda each: each.resource == VCUDA)
    assert (known.allocatable, known.free) == (8, 8)

    workspace.add_pod("whole", workspace.pod_spec(200, resource=VCUDA))
    whole = workspace.wait_phase("whole", "Running")
    assert len(set(gpus(whole))) == 2

    workspace.add_pod("part", workspace.pod_spec(50, resource=VCUDA), labels={"pyscheduler.io/group": "g"})
    part = workspace.wait_phase("part", "Running")
    assert [annotation(part, key) for key in (GPUS, PLACEMENT)] == [None, None]
    event = workspace.wait_event("part", f"container main asks for 50 of {VCUDA}, of which 100 are one GPU")
    assert (event["type"], event["reason"], event.get("count")) == ("Normal", "LeftAlone", 1)

    # Two cards are held by name, and another one that nobody can name.
    wait_known(socket, node, lambda each: each.free == 5 and each.count_only)
    workspace.add_pod("six", workspace.pod_spec(600, resource=VCUDA))
    workspace.wait_event("six", f"needs 6 GPUs ({VCUDA}) on one node; the nearest fit is {node} with 5, 1 too few")
    workspace.add_pod("five", workspace.pod_spec(500, resource=VCUDA))
    five = gpus(workspace.wait_phase("five", "Running"))
    assert len(set(five)) == 5
    assert set(five).isdisjoint(gpus(whole))
