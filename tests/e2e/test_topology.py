"""What the service knows of machines and fabric, while it runs: documents, presets, shared classes, changes, and what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local import components, machines, probes, users
from deploy.local.api import Api, Object, in_parallel
from deploy.local.control_plane import ControlPlane
from deploy.local.errors import ApiError
from deploy.local.layout import REPOSITORY
from deploy.local.processes import Command, Process, wait_ready
from deploy.local.simulated_nodes import NODES, TOPOLOGY, encode_topology
from deploy.local.workspace import Workspace, annotation, has_condition
from pyscheduler.core.machine.classify import class_of
from pyscheduler.core.machine.device_class import class_hash
from pyscheduler.core.machine.device_table import MAX_GPUS
from pyscheduler.readers import class_document, node_document
from tests.e2e.known_nodes import shown, until, wait_known
from tests.e2e.test_placement import PLACEMENT, gpus, uuids

PRESET = "pyscheduler.io/preset"
LEAF = "fabric.topograph.run/tier-0"
CLASSES = "/api/v1/namespaces/default/configmaps"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

Document = dict[str, Any]


def annotate(api: Api, node: str, document: Document | str | None) -> None:
    """Write the topology annotation of a node; None removes it."""
    text = encode_topology(document) if isinstance(document, dict) else document
    api.patch(f"{NODES}/{node}", {"metadata": {"annotations": {TOPOLOGY: text}}})


def relinked(document: Document, pair: tuple[str, str], kind: str) -> Document:
    """Return the document with another link between two GPUs."""
    links = [{**link, "type": kind} if (link["a"], link["b"]) == pair else link for link in document["links"]]
    return {**document, "links": links}


def of_model(document: Document, model: str) -> Document:
    """Return the document of a machine with other cards."""
    return {**document, "gpus": [{**gpu, "model": model} for gpu in document["gpus"]]}


def placement(pod: Object) -> Mapping[str, Any]:
    """Return what the scheduler says of its choice."""
    said: Mapping[str, Any] = json.loads(annotation(pod, PLACEMENT) or "{}")
    return said


# Machines that nobody looked at


def test_node_without_a_document_is_taken_for_the_machine_of_its_product_label(
    workspace: Workspace, control_plane: ControlPlane
) -> None:
    (node,) = workspace.add_nodes("hgx-h100")
    annotate(workspace.api, node, None)
    wait_known(control_plane.layout.socket, node, lambda n: n.assumed and len(n.gpus) == 8)
    workspace.add_pod("p", workspace.pod_spec(4))
    pod = workspace.wait_bound("p")
    said = placement(pod)
    assert (said["advisory"], said["bottleneck"]) == (True, "NV18")
    chosen = gpus(pod)
    assert len(chosen) == 4
    assert set(chosen) <= {f"index:{i}" for i in range(8)}


def test_preset_label_gives_four_gpus_on_an_nvlink_ring(workspace: Workspace, control_plane: ControlPlane) -> None:
    # The product label says hgx-h100, which an operator corrects.
    (node,) = workspace.add_nodes("hgx-h100", labels={PRESET: "dgx-1v"})
    annotate(workspace.api, node, None)
    wait_known(control_plane.layout.socket, node, lambda n: n.assumed)
    workspace.add_pod("p", workspace.pod_spec(4))
    pod = workspace.wait_bound("p")
    assert placement(pod)["advisory"] is True
    chosen = sorted(int(handle.removeprefix("index:")) for handle in gpus(pod))
    assert len(chosen) == 4
    links = machines.document("dgx-1v", "any")["links"]
    nvlinks = {frozenset((link["a"], link["b"])) for link in links if link["type"].startswith("NV")}
    ids = [f"GPU{i}" for i in chosen]
    assert any(all(frozenset(pair) in nvlinks for pair in pairwise((*ring, ring[0]))) for ring in permutations(ids))


# Classes that equal machines share


def test_class_that_comes_late_makes_its_nodes_whole(workspace: Workspace, control_plane: ControlPlane) -> None:
    api, socket = workspace.api, control_plane.layout.socket
    (node,) = workspace.add_nodes("a100-pcie-bridged")
    document = of_model(machines.document("a100-pcie-bridged", node), f"Card of {workspace.name}")
    whole = node_document.of_json(document)
    shared = class_of(whole)
    named = class_hash(shared)
    annotate(api, node, node_document.dump(replace(whole, class_hash=named), shared=True))
    event = api.wait_for(
        "/api/v1/namespaces/default/events", lambda e: e["involvedObject"]["name"] == node and named in e["message"]
    )
    assert "which no ConfigMap holds" in event["message"]
    workspace.add_pod("before", workspace.pod_spec(1))
    before = workspace.wait_bound("before")
    assert (placement(before)["advisory"], gpus(before)) == (True, ["index:0"])

    config_map = dict(class_document.config_map(shared, "default"))
    api.create(CLASSES, config_map)
    try:
        # Nothing about the node changes.
        wait_known(socket, node, lambda n: n.class_hash == named and not n.findings)
        workspace.add_pod("after", workspace.pod_spec(2))
        after = workspace.wait_bound("after")
        assert set(gpus(after)) == uuids("a100-pcie-bridged", node, (2, 3))
        assert (placement(after)["advisory"], placement(after)["bottleneck"]) == (False, "NV12")

        control_plane.restart_component(components.SERVICE)
        workspace.add_pod("restarted", workspace.pod_spec(1))
        assert set(gpus(workspace.wait_bound("restarted"))) == uuids("a100-pcie-bridged", node, (1,))
    finally:
        api.delete(f"{CLASSES}/{config_map['metadata']['name']}")


def test_service_reads_config_maps_of_its_own_namespace_alone(control_plane: ControlPlane) -> None:
    service = control_plane.api_of(users.SERVICE)
    assert service.read_all(CLASSES)
    for refused in ("/api/v1/namespaces/kube-system/configmaps", "/api/v1/configmaps"):
        with pytest.raises(ApiError, match="forbidden"):
            service.read_all(refused)


# Machines that change while the service runs


def test_gpu_that_becomes_sick_is_not_chosen_any_more(workspace: Workspace, control_plane: ControlPlane) -> None:
    (node,) = workspace.add_nodes("dgx-1v")
    document = machines.document("dgx-1v", node)
    sick = {**document, "gpus": [{**gpu, "healthy": gpu["id"] != "GPU2"} for gpu in document["gpus"]]}
    annotate(workspace.api, node, sick)
    wait_known(control_plane.layout.socket, node, lambda n: [g.id for g in n.gpus if not g.healthy] == ["GPU2"])
    workspace.add_pod("seven", workspace.pod_spec(7))
    pod = workspace.wait_bound("seven")
    assert set(gpus(pod)) == uuids("dgx-1v", node, (0, 1, 3, 4, 5, 6, 7))
    workspace.add_pod("one-more", workspace.pod_spec(1))
    workspace.wait_event("one-more", "needs 1 GPU")


def test_link_that_is_lost_changes_the_choice(workspace: Workspace, control_plane: ControlPlane) -> None:
    (node,) = workspace.add_nodes("a100-pcie-bridged")
    socket = control_plane.layout.socket
    sound = wait_known(socket, node, lambda n: bool(n.class_hash))
    workspace.add_pod("before", workspace.pod_spec(2))
    before = workspace.wait_phase("before", "Running")
    assert set(gpus(before)) == uuids("a100-pcie-bridged", node, (0, 1))
    workspace.delete_pod("before")
    annotate(workspace.api, node, relinked(machines.document("a100-pcie-bridged", node), ("GPU0", "GPU1"), "SYS"))
    wait_known(socket, node, lambda n: n.class_hash not in ("", sound.class_hash) and n.free == 4)
    workspace.add_pod("after", workspace.pod_spec(2))
    after = workspace.wait_bound("after")
    assert (set(gpus(after)), placement(after)["bottleneck"]) == (uuids("a100-pcie-bridged", node, (2, 3)), "NV12")


def test_node_that_moves_to_another_leaf_is_known_there(workspace: Workspace, control_plane: ControlPlane) -> None:
    (node,) = workspace.add_nodes("a100-pcie-bridged", fabric=("leaf-a", "spine"))
    socket = control_plane.layout.socket
    levels = [step.split("=") for step in wait_known(socket, node, lambda n: len(n.path) == 2).path]
    assert [domain for _, domain in levels] == ["leaf-a", "spine"]
    workspace.api.patch(f"{NODES}/{node}", {"metadata": {"labels": {LEAF: "leaf-b"}}})
    wait_known(socket, node, lambda n: list(n.path) == [f"{levels[0][0]}=leaf-b", f"{levels[1][0]}=spine"])


def test_decisions_go_on_while_new_machines_join(workspace: Workspace, control_plane: ControlPlane) -> None:
    """Sixteen GPUs take longest to judge; each of these machines is of a kind that the service has never seen."""
    workspace.add_nodes("hgx-h100")
    workspace.wait_untainted()
    joined = workspace.add_nodes("dgx-2", 3)
    for number, node in enumerate(joined):
        annotate(workspace.api, node, of_model(machines.document("dgx-2", node), f"Card {number} of {workspace.name}"))
    names = [f"p{i}" for i in range(12)]
    in_parallel(lambda name: workspace.add_pod(name, workspace.pod_spec(2)), names)
    workspace.wait_pods(names, lambda pod: "nodeName" in pod["spec"])
    given = [(pod["spec"]["nodeName"], handle) for name in names for pod in (workspace.pod(name),) for handle in gpus(pod)]
    assert len(given) == len(set(given)) == 24
    known = [wait_known(control_plane.layout.socket, node, lambda n: len(n.gpus) == 16) for node in joined]
    until(
        lambda: len({shown(control_plane.layout.socket, node.name).class_hash for node in known}) == 3,  # type: ignore[union-attr]
        "a class of its own for each machine",
    )


# What is wrong


def logged(path: Path, begin: int) -> list[Mapping[str, Any]]:
    """Return the lines of a log of the service that were written after the byte `begin`."""
    with path.open("rb") as log:
        log.seek(begin)
        lines = log.read().decode().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def scraped(port: int) -> dict[str, float]:
    """Return the metrics of a service."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_what_is_wrong_is_told_once_with_the_remedy_and_harms_no_other_node(
    workspace: Workspace, control_plane: ControlPlane
) -> None:
    api, log = workspace.api, control_plane.layout.log(components.SERVICE)
    workspace.add_nodes("hgx-h100", 3)
    broken, mislabelled, large, first, second = workspace.add_nodes("a100-pcie-bridged", 5)
    annotate(api, broken, '{"version": 1, "kind": "node", "gpus": []}')
    annotate(api, mislabelled, None)
    api.patch(f"{NODES}/{mislabelled}", {"metadata": {"labels": {PRESET: "dgx-900"}}})
    document = machines.document("a100-pcie-bridged", large)
    added = [
        {**document["gpus"][0], "id": f"GPU{i}", "index": i, "uuid": f"GPU-{i}", "pci": None} for i in range(4, MAX_GPUS + 1)
    ]
    annotate(api, large, {**document, "gpus": [*document["gpus"], *added]})
    annotate(api, second, machines.document("a100-pcie-bridged", first))

    # Lint looks at a cluster at the start, and then once a minute at most.
    control_plane.stop_component(components.SERVICE)
    begin = log.stat().st_size
    control_plane.start_component(components.SERVICE)
    port = next(line["http_port"] for line in logged(log, begin) if line["event"] == "serving")
    metrics = until(
        lambda: (m := scraped(port)) and 'pyscheduler_findings{code="uuid-duplicated",severity="error"}' in m and m, "lint"
    )
    expected = {"document-unusable": broken, "preset-unknown": mislabelled, "uuid-duplicated": ""}
    for code in expected:
        assert metrics[f'pyscheduler_findings{{code="{code}",severity="error"}}'] == 1
    # Those that are wrong by themselves; the UUIDs of each of the two nodes are right by themselves.
    assert metrics["pyscheduler_nodes_with_findings"] == 3

    names = [f"p{i}" for i in range(20)]
    in_parallel(lambda name: workspace.add_pod(name, workspace.pod_spec(1)), names)
    workspace.wait_pods(names, lambda pod: "nodeName" in pod["spec"])
    told = Counter(
        (line["node"], code)
        for line in logged(log, begin)
        if line["event"] in ("node finding", "topology finding")
        for code in line.get("codes", [line.get("code")])
    )
    assert told[broken, "document-unusable"] == told[mislabelled, "preset-unknown"] == told[large, "links-not-judged"] == 1
    assert set(told.values()) == {1}

    target = ["--kubeconfig", str(control_plane.kubeconfig), "--output", "json"]
    line = [sys.executable, "-m", "pyscheduler", "topology", "lint", *target]
    ended = subprocess.run(line, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    found = {finding["code"]: finding for finding in json.loads(ended.stdout)["findings"]}
    assert {code: found[code]["node"] for code in expected} == expected
    assert "or remove the annotation" in found["document-unusable"]["message"]
    assert "use one of" in found["preset-unknown"]["message"]
    assert f"{first}, {second}" in found["uuid-duplicated"]["message"]
    assert "write that of each node anew" in found["uuid-duplicated"]["remedy"]


# Objects that say where nodes are


def definition(group: str, version: str, kind: str, plural: str) -> Object:
    """Return a CustomResourceDefinition that takes any spec."""
    schema = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@contextmanager
def installed(api: Api, crd: Object) -> Iterator[str]:
    """Serve a kind of object for a while; give the path of its collection."""
    name, spec = crd["metadata"]["name"], crd["spec"]
    api.create(CRDS, crd)
    try:
        api.wait_for(CRDS, lambda item: has_condition(item, "Established"), name=name)
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        # Established is said shortly before it is served.
        until(lambda: _is_served(api, path), path)
        yield path
    finally:
        api.delete(f"{CRDS}/{name}")
        api.wait_gone(CRDS, name)


def _is_served(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError:
        return False
    return True


@contextmanager
def second_service(plane: ControlPlane, folder: Path, fabric: Mapping[str, str]) -> Iterator[Path]:
    """Run another service beside that of the control plane, which nobody asks for decisions; give its socket."""
    socket, config, log = folder / "second.sock", folder / "second.yaml", folder / "second.log"
    kubeconfig = str(plane.layout.kubeconfig(users.SERVICE.name))
    config.write_text(yaml.safe_dump({"socket": str(socket), "kubeconfig": kubeconfig, "http_port": 0, "fabric": dict(fabric)}))
    command = Command(
        name="second service",
        argv=(sys.executable, "-m", "pyscheduler", "serve", "--config", str(config)),
        log=log,
        pid_file=folder / "second.pid",
        folder=folder,
        environment={"PYTHONPATH": str(REPOSITORY)},
    )
    process = Process.start(command, detached=False)
    try:
        wait_ready(process, probes.serves(socket), log, 60.0)
        yield socket
        assert process.is_running()
    finally:
        process.stop(15.0)


def hypernode(name: str, tier: int, kind: str, members: Sequence[str]) -> Object:
    """Return a HyperNode whose members are named."""
    listed = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members]
    return {"metadata": {"name": name}, "spec": {"tier": tier, "members": listed}}


def test_hypernodes_say_where_nodes_are_and_may_change(workspace: Workspace, control_plane: ControlPlane, tmp_path: Path) -> None:
    api = workspace.api
    one, two = workspace.add_nodes("a100-pcie-bridged", 2)
    crd = definition("topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes")
    with installed(api, crd) as hypernodes:
        kind = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode"}
        for manifest in (
            hypernode("rack-a", 1, "Node", [one]),
            hypernode("rack-b", 1, "Node", [two]),
            hypernode("row", 2, "HyperNode", ["rack-a", "rack-b"]),
        ):
            api.create(hypernodes, {**kind, **manifest})
        with second_service(control_plane, tmp_path, {"source": "hypernodes"}) as socket:
            wait_known(socket, one, lambda n: list(n.path) == ["tier-1=rack-a", "tier-2=row"])
            wait_known(socket, two, lambda n: list(n.path) == ["tier-1=rack-b", "tier-2=row"])
            api.patch(f"{hypernodes}/rack-a", {"spec": hypernode("rack-a", 1, "Node", [one, two])["spec"]})
            api.patch(f"{hypernodes}/rack-b", {"spec": hypernode("rack-b", 1, "Node", ["nobody"])["spec"]})

            def moved() -> bool:
                # The list of nodes is read anew after the next event of any node.
                api.patch(f"{NODES}/{one}", {"metadata": {"labels": {"touched": str(time.monotonic_ns())}}})
                node = shown(socket, two)
                return node is not None and list(node.path) == ["tier-1=rack-a", "tier-2=row"]

            until(moved, "the move", every_s=0.3)


def test_topology_of_kueue_says_where_nodes_are(workspace: Workspace, control_plane: ControlPlane, tmp_path: Path) -> None:
    api = workspace.api
    block, rack = "cloud.example.com/block", "cloud.example.com/rack"
    (node,) = workspace.add_nodes("a100-pcie-bridged", labels={block: "b7", rack: "r3"})
    # Not the version that the service would try if it could not ask.
    crd = definition("kueue.x-k8s.io", "v1beta1", "Topology", "topologies")
    with installed(api, crd) as topologies:
        levels = [{"nodeLabel": label} for label in (block, rack, "kubernetes.io/hostname")]
        manifest = {"metadata": {"name": "gpu-racks"}, "spec": {"levels": levels}}
        api.create(topologies, {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Topology", **manifest})
        with second_service(control_plane, tmp_path, {"source": "kueue", "topology": "gpu-racks"}) as socket:
            known = wait_known(socket, node, lambda n: bool(n.path))
            assert list(known.path) == [f"{rack}=r3", f"{block}=b7"]
