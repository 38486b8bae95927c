"""Node objects of simulated machines."""

from __future__ import annotations

import json

import pytest

from deploy.local import machines
from deploy.local.simulated_nodes import SimulatedNode, first_gpus, manifest


@pytest.mark.parametrize("machine", machines.NAMES)
def test_capacity_and_topology_agree(machine: str) -> None:
    node = manifest(SimulatedNode(name="n", machine=machine))
    topology = json.loads(node["metadata"]["annotations"]["pyscheduler.io/topology"])
    assert node["status"]["capacity"][machines.resource(machine)] == str(len(topology["gpus"]))
    assert node["status"]["allocatable"] == node["status"]["capacity"]


def test_labels_name_product_and_fabric() -> None:
    node = SimulatedNode(name="n", machine="dgx-1v", fabric=("leaf-a", "spine-1"), labels={"team": "a"})
    assert manifest(node)["metadata"]["labels"] == {
        "kubernetes.io/hostname": "n",
        "pyscheduler.io/simulated": "true",
        "nvidia.com/gpu.product": machines.product("dgx-1v"),
        "fabric.topograph.run/tier-0": "leaf-a",
        "fabric.topograph.run/tier-1": "spine-1",
        "team": "a",
    }


@pytest.mark.parametrize("count", [0, 1, 5, 8])
def test_lost_gpus_take_their_links_with_them(count: int) -> None:
    document = machines.document("dgx-1v", "n")
    left = first_gpus(document, count)
    assert left["gpus"] == document["gpus"][:count]
    assert len(left["links"]) == count * (count - 1) // 2
    assert {link["gpu"] for link in left["nic_links"]} == {gpu["id"] for gpu in left["gpus"]}
    assert len(document["gpus"]) == 8
