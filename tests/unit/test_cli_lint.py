"""`pyscheduler topology lint`: Node objects of files or of a cluster to findings, for people and as JSON."""

from __future__ import annotations

import io
import json
import sys
from itertools import combinations

import pytest
import yaml
from rich.console import Console

from pyscheduler.adapters import api
from pyscheduler.cli import cluster_files
from pyscheduler.cli.main import main
from pyscheduler.cli.topology_lint_text import show
from pyscheduler.core.findings import Finding, Severity

GPU = "nvidia.com/gpu"
BOOT = "b00t-1"
LEAF, SPINE = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"


class Run:
    """One call of the command line."""

    def __init__(self, monkeypatch, capfd, *words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["pyscheduler", "topology", "lint", *words])
        with pytest.raises(SystemExit) as end:
            main()
        self.code = end.value.code or 0
        self.out, self.err = capfd.readouterr()

    @property
    def codes(self) -> list[str]:
        return [finding["code"] for finding in json.loads(self.out)["findings"]]


@pytest.fixture
def run(monkeypatch, capfd, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return lambda *words: Run(monkeypatch, capfd, *words)


@pytest.fixture
def file(tmp_path):
    def write(content: object, name: str = "nodes.json") -> str:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


def document(name, gpus=4, **fields):
    cards = [{"id": f"GPU{i}", "uuid": f"GPU-{name}-{i}", "model": "H100", "numa": i // 2} for i in range(gpus)]
    links = [{"a": f"GPU{a}", "b": f"GPU{b}", "type": "NV18"} for a, b in combinations(range(gpus), 2)]
    return {"version": 1, "kind": "node", "gpus": cards, "links": links, "boot_id": BOOT, **fields}


def node(name, leaf="leaf-1", said=None, **labels):
    """Return a Node object of a healthy node with four GPUs; None is no document."""
    annotations = {"pyscheduler.io/topology": json.dumps(said or document(name))}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {LEAF: leaf, SPINE: "spine-1", **labels}, "annotations": annotations},
        "status": {"capacity": {GPU: "4"}, "allocatable": {GPU: "4"}, "nodeInfo": {"bootID": BOOT}},
    }


def listed(*nodes, kind="List"):
    return {"apiVersion": "v1", "kind": kind, "items": list(nodes)}


HEALTHY = [node("n1"), node("n2"), node("n3", "leaf-2")]
REBOOTED = node("n4", said=document("n4", boot_id="b00t-0"))


def refused(result: Run, *words: str) -> None:
    assert result.code == 2
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert all(word in result.err for word in words)


def test_a_healthy_cluster_is_one_line_and_exit_code_0(run, file):
    result = run(file(listed(*HEALTHY)))

    assert (result.code, result.out) == (0, "no findings on 3 nodes, 12 GPUs\n")


def test_a_finding_is_told_with_node_and_remedy_and_exit_code_1(run, file):
    result = run(file(listed(*HEALTHY, REBOOTED)))

    assert result.code == 1
    lines = result.out.splitlines()
    assert "document-older-than-boot" in lines[0]
    assert lines[1].startswith("  n4: its document")
    assert lines[2].startswith("    -> write the annotation anew")
    assert lines[-1] == "1 warning on 4 nodes, 16 GPUs"


def test_notes_alone_are_exit_code_0(run, file):
    bare = node("n4")
    del bare["metadata"]["annotations"]
    result = run(file(listed(*HEALTHY, bare)), "-o", "json")

    assert (result.code, result.codes) == (0, ["document-missing"])


def test_json_holds_every_finding(run, file):
    result = run(file(listed(*HEALTHY, REBOOTED)), "-o", "json")

    answer = json.loads(result.out)
    assert {key: answer[key] for key in ("version", "kind", "nodes", "gpus")} == {
        "version": 1,
        "kind": "lint",
        "nodes": 4,
        "gpus": 16,
    }
    [finding] = answer["findings"]
    assert list(finding) == ["code", "severity", "node", "message", "remedy"]
    assert (finding["code"], finding["severity"], finding["node"]) == ("document-older-than-boot", "warning", "n4")


def test_stale_labels_are_found(run, file):
    stale = node("n4", **{"network.topology.nvidia.com/leaf": "leaf-9", "network.topology.nvidia.com/spine": "spine-1"})
    result = run(file(listed(*HEALTHY, stale)), "-o", "json")

    assert result.codes == ["label-families-disagree"]
    assert "network.topology.nvidia.com/leaf" in json.loads(result.out)["findings"][0]["remedy"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(json.dumps(listed(*HEALTHY)), id="list"),
        pytest.param(json.dumps(listed(*({**each, "kind": None} for each in HEALTHY), kind="NodeList")), id="items without kind"),
        pytest.param(json.dumps(HEALTHY), id="bare list"),
        pytest.param(json.dumps([listed(HEALTHY[0]), listed(*HEALTHY[1:])]), id="list of lists"),
        pytest.param(yaml.safe_dump(listed(*HEALTHY)), id="YAML"),
        pytest.param(yaml.safe_dump_all(HEALTHY), id="YAML documents"),
        pytest.param(json.dumps(listed({"kind": "Pod", "metadata": {"name": "p"}}, *HEALTHY)), id="with other kinds"),
    ],
)
def test_forms_of_input(run, file, content):
    result = run(file(content))

    assert (result.code, result.out) == (0, "no findings on 3 nodes, 12 GPUs\n")


def test_several_files_are_one_cluster(run, file):
    twin = node("n2", said=document("n1"))
    result = run(file(node("n1"), "a.json"), file(twin, "b.json"), "-o", "json")

    assert (result.code, result.codes) == (1, ["uuid-duplicated"])


def test_standard_input(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(listed(*HEALTHY)).encode())))

    assert run("-").code == 0


def test_input_that_cannot_be_used(run, file, tmp_path):
    refused(run(str(tmp_path / "none")), "cannot be read")
    refused(run(file("just words")), "nodes.json", "neither JSON nor YAML", "kubectl get nodes")
    refused(run(file(listed())), "nodes.json", "no Node objects")
    refused(run(file(listed({"kind": "Pod"}))), "no Node objects")
    refused(run(file("[" * 100_000)), "nodes.json")
    refused(run(file(listed(*HEALTHY)), file("5", "b.json")), "b.json", "no Node objects")


def test_yaml_that_is_too_long_names_the_way_out(run, file, monkeypatch):
    monkeypatch.setattr(cluster_files, "YAML_LIMIT_CHARS", 10)

    refused(run(file("a: [" + "x" * 100)), "-o json")


@pytest.mark.parametrize("broken", [{"kind": "Node"}, {"kind": "Node", "metadata": {"name": "n9", "labels": 5}}])
def test_one_object_that_cannot_be_read_does_not_keep_the_others_from_being_checked(run, file, broken):
    result = run(file(listed(*HEALTHY, broken, REBOOTED)), "-o", "json")

    assert result.code == 1
    assert result.codes == ["node-unreadable", "document-older-than-boot"]


def test_a_node_that_is_listed_twice(run, file):
    same, other = listed(*HEALTHY), node("n1", "leaf-2")

    assert run(file(same, "a.json"), file(same, "b.json")).out == "no findings on 3 nodes, 12 GPUs\n"
    assert run(file(same, "a.json"), file(other, "b.json"), "-o", "json").codes == ["node-repeated"]


def test_resources_of_the_configuration(run, file):
    config = file("resources: [example.com/gpu]\n", "config.yaml")
    nodes = [{**each, "status": {"allocatable": {"example.com/gpu": "4"}, "nodeInfo": {"bootID": BOOT}}} for each in HEALTHY]

    assert run(file(listed(*nodes)), "--config", config).code == 0
    refused(run(file(listed(*nodes)), "--config", file("nonsense: 1\n", "config.yaml")), "nonsense")


class Pages:
    """An API server that gives its nodes in pages of two."""

    made: list[str | None]

    def __init__(self, kubeconfig):
        self.made.append(kubeconfig)

    def get(self, path, query):
        if path.endswith("/configmaps"):
            return {"metadata": {}, "items": []}
        assert path == "/api/v1/nodes"
        at = int(query.get("continue", 0))
        nodes = [*HEALTHY, REBOOTED, node("n5")]
        more = {"continue": str(at + 2)} if at + 2 < len(nodes) else {}
        return {"metadata": more, "items": [{k: v for k, v in each.items() if k != "kind"} for each in nodes[at : at + 2]]}


class Expired(Pages):
    """One whose list ends after the first page."""

    def get(self, path, query):
        if "continue" in query:
            raise api.Gone("too old")
        return super().get(path, query)


@pytest.fixture
def live(monkeypatch):
    def use(server):
        server.made = []
        monkeypatch.setattr(api, "ApiServer", server)
        return server.made

    return use


def test_without_a_file_the_cluster_is_listed(run, live, tmp_path):
    made = live(Pages)
    result = run("--kubeconfig", "/etc/some.conf", "-o", "json")

    assert (json.loads(result.out)["nodes"], result.codes) == (5, ["document-older-than-boot"])
    usual = tmp_path / ".kube" / "config"
    usual.parent.mkdir()
    run()
    usual.touch()
    run()
    assert made == ["/etc/some.conf", None, str(usual)]


def test_a_list_that_expires_is_one_line(run, live):
    live(Expired)

    refused(run(), "try again")


def text(*findings: Finding) -> str:
    console = Console(file=io.StringIO(), width=80)
    show(findings, nodes=12800, gpus=102400, console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_what_is_the_same_on_many_nodes_is_one_line():
    shown = text(*(Finding("numa-unknown", "not known", "do it", f"n{i}") for i in range(5000)))

    assert shown.splitlines() == [
        "warning numa-unknown",
        "  n0, n1, n2, n3 and 4,996 more nodes: not known",
        "    -> do it",
        "5,000 warnings on 12,800 nodes, 102,400 GPUs",
    ]


def test_one_more_node_is_one():
    shown = text(*(Finding("numa-unknown", "not known", "", f"n{i}") for i in range(5)))

    assert "  n0, n1, n2, n3 and 1 more node: not known" in shown.splitlines()


def test_without_a_kubeconfig_it_is_said_where_one_is_looked_for(run, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    refused(run(), "--kubeconfig", "KUBECONFIG", "~/.kube/config is not there")


def test_many_different_findings_of_a_code_are_cut():
    lines = text(*(Finding("link-unknown", f"link {i}", "do it", f"n{i}") for i in range(5000))).splitlines()

    assert len(lines) == 1 + 5 + 1 + 1 + 1
    assert lines[-2] == "  and 4,995 more; -o json has them all"


def test_counts_name_what_there_is():
    shown = text(*(Finding("c", "m", severity=s) for s in (Severity.ERROR, Severity.WARNING, Severity.WARNING, Severity.NOTE)))

    assert shown.splitlines()[-1] == "1 error, 2 warnings, 1 note on 12,800 nodes, 102,400 GPUs"


def test_names_do_not_steer_the_terminal():
    shown = text(Finding("c", "domain [red]a[/] \x1b[31mb\n", "", "n1"))

    assert "  n1: domain [red]a[/] ?[31mb?" in shown.splitlines()


def test_config_maps_that_are_no_classes_are_none_of_ours(run, file):
    others = [
        {"kind": "ConfigMap", "metadata": {"name": f"c{i}", "labels": labels}} for i, labels in enumerate(({"app": "x"}, None))
    ]

    assert run(file(listed(*HEALTHY, *others))).code == 0
