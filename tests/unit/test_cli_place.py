"""`pyscheduler place`: snapshots and live clusters to answers, and input that cannot be used to one line."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import structlog
import yaml

from pyscheduler.cli.main import main


class Run:
    """One call of the command line."""

    def __init__(self, monkeypatch, capfd, *words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["pyscheduler", "place", *words])
        with pytest.raises(SystemExit) as end:
            main()
        self.code = end.value.code or 0
        self.out, self.err = capfd.readouterr()

    @property
    def answer(self) -> Any:
        assert self.err == ""
        return json.loads(self.out)

    @property
    def codes(self) -> list[str]:
        return [warning["code"] for warning in self.answer["warnings"]]

    @property
    def where(self) -> list[tuple[str, str]]:
        return [(pod["node"], " ".join(pod["gpus"])) for pod in self.answer["pods"]]


@pytest.fixture
def call(monkeypatch, capfd, tmp_path):
    """Call it in a folder of its own, without a kubeconfig."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    yield lambda *words: Run(monkeypatch, capfd, *words)
    # A command sets up the logs of its process, which is that of all tests.
    structlog.reset_defaults()


@pytest.fixture
def place(call, tmp_path):
    """Call it with a snapshot (and requests), as JSON."""

    def placed(snapshot: Any, *words: str, requests: Any = None) -> Run:
        (tmp_path / "cluster.json").write_text(json.dumps(snapshot))
        if requests is not None:
            (tmp_path / "asked.json").write_text(json.dumps(requests))
            words = (*words, "--requests", "asked.json")
        return call("--cluster", "cluster.json", "-o", "json", *words)

    return placed


def node(name: str, *path: str | None, gpus: int = 4, busy: str = "", link: str = "NV6", **more: Any) -> dict[str, Any]:
    """Return a node whose GPUs g0, g1 ... are linked alike; `busy` has the digits of those that are allocated."""
    return {
        "name": name,
        "path": list(path),
        "gpus": [{"id": f"g{i}", "numa": 0, "allocated": str(i) in busy} for i in range(gpus)],
        "links": {f"g{a}-g{b}": link for a, b in combinations(range(gpus), 2)},
        **more,
    }


def cluster(*nodes: dict[str, Any], levels: tuple[str, ...] = ("row", "hall")) -> dict[str, Any]:
    return {"version": 1, "levels": list(levels), "nodes": list(nodes)}


PAIRS = node("box", links={"g0-g2": "NV4", "g1-g3": "NV2", "g0-g1": "SYS", "g0-g3": "SYS", "g1-g2": "SYS", "g2-g3": "SYS"})


def refused(result: Run, *words: str) -> None:
    assert result.code == 2
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert [word for word in words if word not in result.err] == []


# -- answers ------------------------------------------------------------------------------------------------------------


def test_one_pod_gets_the_best_linked_pair_with_all_that_is_said_of_it(place):
    result = place(cluster(PAIRS), "--gpus", "2")

    assert result.code == 0
    assert result.answer == {
        "feasible": True,
        "pods": [{"node": "box", "gpus": ["g0", "g2"], "ring": ["g0", "g2"]}],
        "bottleneck": "NV4",
        "level": "node",
        "predicted_allreduce_gbps": result.answer["predicted_allreduce_gbps"],
        "model": "ring-packing",
        "warnings": [],
        "best_gbps": result.answer["predicted_allreduce_gbps"],
        "worst_gbps": result.answer["worst_gbps"],
        "runner_up": {
            "pods": [{"node": "box", "gpus": ["g1", "g3"], "ring": ["g1", "g3"]}],
            "predicted_allreduce_gbps": result.answer["runner_up"]["predicted_allreduce_gbps"],
        },
        "runner_up_reason": "the rings of its slowest pod carry 40 GB/s, not 80",
    }
    assert result.answer["worst_gbps"] < result.answer["runner_up"]["predicted_allreduce_gbps"] < result.answer["best_gbps"]
    # Four links of 20 GB/s, less what is lost on the way.
    assert 60 < result.answer["predicted_allreduce_gbps"] <= 80


def test_one_gpu_has_no_weakest_link_and_no_bandwidth(place):
    answer = place(cluster(PAIRS), "--gpus", "1").answer

    assert (answer["bottleneck"], answer["predicted_allreduce_gbps"], answer["level"]) == (None, None, "node")


def test_a_gang_is_placed_in_one_domain_in_rank_order(place):
    nodes = [node("a1", "r1", "h"), node("b1", "r2", "h"), node("b2", "r2", "h")]
    result = place(cluster(*nodes), "--pods", "2", "--gpus-per-pod", "4")

    assert result.where == [("b1", "g0 g1 g2 g3"), ("b2", "g0 g1 g2 g3")]
    assert (result.answer["level"], result.answer["bottleneck"]) == ("row", "NV6")
    assert result.answer["predicted_allreduce_gbps"] > 0


def test_a_job_that_no_level_holds_says_so(place):
    result = place(cluster(node("a"), node("b")), "--pods", "2", "--gpus-per-pod", "4")

    assert (result.code, result.answer["level"]) == (0, None)


def test_allocated_and_unhealthy_gpus_are_never_chosen(place):
    sick = node("box", busy="0")
    sick["gpus"][1]["healthy"] = False

    assert place(cluster(sick), "--gpus", "2").where == [("box", "g2 g3")]
    refusal = place(cluster(sick), "--gpus", "3")
    assert (refusal.code, refusal.answer["fits"]) == (1, 2)


def test_a_gpu_that_is_unhealthy_and_allocated_is_lost_once(place):
    sick = node("box", busy="0")
    sick["gpus"][0]["healthy"] = False

    assert place(cluster(sick), "--gpus", "3").where == [("box", "g1 g2 g3")]


def test_a_job_that_does_not_fit_is_refused_with_numbers(place):
    result = place(cluster(node("box", busy="01")), "--gpus", "3")

    assert result.code == 1
    assert result.answer["feasible"] is False
    assert (result.answer["fits"], result.answer["level"], result.answer["binds"]) == (2, "node", "gpus")
    assert "3 GPUs" in result.answer["reason"]
    assert "2 (box)" in result.answer["reason"]
    assert result.answer["change"]


@pytest.mark.parametrize(
    ("flags", "gpus"),
    [
        (("--max-link", "NV4"), "g0 g2"),
        (("--near-nic", "nic1"), "g1 g3"),
        (("--same-numa",), "g2 g3"),
        (("--same-model",), "g1 g3"),
    ],
)
def test_limits_of_the_flags_bind(place, flags, gpus):
    box = {
        **PAIRS,
        "gpus": [
            {"id": f"g{i}", "numa": numa, "model": model}
            for i, (numa, model) in enumerate(zip((0, 1, 2, 2), "XYZY", strict=True))
        ],
        "nics": ["nic0", "nic1"],
        "nic_links": {"g0-nic1": "SYS", "g1-nic1": "PIX", "g2-nic1": "SYS", "g3-nic1": "SYS"},
    }

    assert place(cluster(box), "--gpus", "2", *flags).where == [("box", gpus)]


def test_one_pod_per_node_and_levels_bind(place):
    nodes = [node("a1", "r1", "h"), node("b1", "r2", "h"), node("b2", "r2", "h", busy="0")]
    ask = ("--pods", "2", "--gpus-per-pod", "2")

    assert place(cluster(*nodes), *ask).where == [("a1", "g0 g1"), ("a1", "g2 g3")]
    apart = place(cluster(*nodes), *ask, "--one-pod-per-node")
    assert [name for name, _ in apart.where] == ["b1", "b2"]
    assert place(cluster(*nodes), "--pods", "3", "--gpus-per-pod", "4", "--required-level", "row").code == 1


def test_partitions_are_the_only_sets(place):
    split = node("box", partitions=[["g0", "g3"], ["g1", "g2"], ["g0"]])

    assert place(cluster(split), "--gpus", "2").where in ([("box", "g0 g3")], [("box", "g1 g2")])
    assert place(cluster(split), "--gpus", "3").code == 1


def test_a_level_that_no_node_is_known_to_be_in_holds_single_nodes_only(place):
    nowhere = cluster(node("a"), node("b"))
    refusal = place(nowhere, "--pods", "2", "--gpus-per-pod", "3", "--required-level", "row")

    assert (refusal.code, refusal.answer["level"]) == (1, "row")
    assert "0 nodes are in a known row" in refusal.answer["reason"]
    assert place(nowhere, "--pods", "2", "--gpus-per-pod", "2", "--required-level", "row").answer["level"] == "node"
    assert place(nowhere, "--pods", "2", "--gpus-per-pod", "3", "--preferred-level", "row").answer["level"] is None


def test_requests_are_placed_one_after_the_other(place):
    asked = [{"gpus": 3}, {"gpus": 2}, {"pods": 1, "gpus_per_pod": 1}, {"gpus": 1}]
    result = place(cluster(node("box")), requests=asked)

    assert result.code == 0
    assert [each["feasible"] for each in result.answer["results"]] == [True, False, True, False]
    taken = [gpu for each in result.answer["results"] if each["feasible"] for pod in each["pods"] for gpu in pod["gpus"]]
    assert sorted(taken) == ["g0", "g1", "g2", "g3"]


@pytest.mark.parametrize("mode", ["kruskal-naive", "first-fit", "random", "least-allocated", "most-allocated", "tightest-domain"])
def test_another_policy_gives_an_answer_of_the_same_form(place, call, mode):
    nodes = cluster(node("a", "r", "h", busy="0"), PAIRS)
    result = place(nodes, "--gpus", "2", "--mode", mode)

    assert len(result.where[0][1].split()) == 2
    assert result.answer.keys() == place(nodes, "--gpus", "2").answer.keys()
    drawing = call("--cluster", "cluster.json", "--gpus", "2", "--mode", mode).out
    assert "the selector's choice: a: " in drawing
    assert "runner-up" not in drawing


def test_a_random_choice_is_that_of_its_seed(place):
    free = cluster(*(node(f"n{i}") for i in range(8)))
    outs = [place(free, "--gpus", "2", "--mode", "random", "--seed", seed).out for seed in ("1", "1", "2", "3")]

    assert outs[0] == outs[1]
    assert len(set(outs)) > 1


def test_no_requests_are_no_results(place):
    assert place(cluster(node("box")), requests=[]).answer["results"] == []


def test_yaml_and_json_give_the_same_answer_as_often_as_asked(call, tmp_path):
    raw = cluster(node("a1", "r1", "h"), node("a2", "r1", "h", busy="3"))
    (tmp_path / "c.json").write_text(json.dumps(raw))
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(raw))
    (tmp_path / "r.yaml").write_text("- gpus: 2\n- {pods: 2, gpus_per_pod: 1, required_level: row}\n")
    outs = {call("--cluster", f"c.{kind}", "--requests", "r.yaml", "-o", "json").out for kind in ("json", "yaml", "json")}

    assert len(outs) == 1


def test_a_cluster_without_nodes_has_room_for_nothing(place):
    result = place(cluster(), "--gpus", "1")

    assert (result.code, result.answer["fits"]) == (1, 0)


# -- warnings -----------------------------------------------------------------------------------------------------------


def test_an_incomplete_topology_is_told_where_it_was_chosen(place):
    partial, whole = node("p", complete=False), node("w", gpus=2)

    assert place(cluster(partial, whole), "--gpus", "4").codes == ["topology-incomplete"]
    assert place(cluster(partial, whole), "--gpus", "2").codes == []


def test_a_pair_without_peer_access_is_told_if_it_is_chosen(place):
    cut = node("box", p2p={"g0-g1": "GNS", "g2-g3": "OK"})

    assert place(cluster(cut), "--gpus", "3").codes == []
    everything = place(cluster(cut), "--gpus", "4")
    assert everything.codes == ["p2p-refused"]
    assert "box: g0 and g1 have no peer access (GNS)" in everything.answer["warnings"][0]["message"]
    assert everything.answer["bottleneck"] == "PHB"


def test_directions_that_differ_are_told_with_the_answer_and_with_the_refusal(place):
    torn = node("box", gpus=2, links={"g0-g1": "NV4", "g1-g0": "NV1"})

    assert place(cluster(torn), "--gpus", "2").codes == ["direction-mismatch"]
    assert place(cluster(torn), "--gpus", "2").answer["bottleneck"] == "NV1"
    assert place(cluster(torn), "--gpus", "3").codes == ["direction-mismatch"]
    assert place(cluster(torn), requests=[{"gpus": 2}]).codes == ["direction-mismatch"]


def test_unknown_links_are_told(place):
    result = place(cluster(node("box", links={})), "--gpus", "2")

    assert result.where == [("box", "g0 g1")]
    assert any("topology" in code for code in result.codes)
    assert result.answer["predicted_allreduce_gbps"] is None


def test_of_very_many_warnings_the_first_are_told_and_the_rest_counted(place):
    torn = [node(f"n{i:03}", gpus=2, links={"g0-g1": "NV4", "g1-g0": "NV1"}) for i in range(50)]
    warnings = place(cluster(*torn), "--gpus", "2").answer["warnings"]

    assert (len(warnings), warnings[-1]["code"]) == (21, "more-warnings")
    assert "30 more" in warnings[-1]["message"]


# -- for people ---------------------------------------------------------------------------------------------------------


def test_a_choice_is_drawn_with_nodes_ring_and_bandwidth(call, tmp_path):
    (tmp_path / "c.json").write_text(json.dumps(cluster(node("a1", "r1", "h", complete=False), node("a2", "r1", "h"))))
    result = call("--cluster", "c.json", "--pods", "2", "--gpus-per-pod", "4")

    assert result.code == 0
    assert "within one row, weakest link inside a pod NV6" in result.out
    for word in ("a1", "a2", "pod 0: g0 g1 g2 g3", "ring g0 > ", "predicted all-reduce"):
        assert word in result.out
    assert result.out.splitlines()[-1].startswith("topology-incomplete: a1: ")


def drawn(call, tmp_path, snapshot: Any, *words: str) -> dict[str, str]:
    """Return the rows of the table of bandwidths, and the line on the runner-up as `lost`."""
    (tmp_path / "c.json").write_text(json.dumps(snapshot))
    lines = call("--cluster", "c.json", *words).out.splitlines()
    rows = [line.split("│") for line in lines if "│" in line and "└" not in line and "├" not in line]
    lost = next((line.removeprefix("runner-up lost: ") for line in lines if line.startswith("runner-up lost: ")), "")
    return {**{row[0].strip(): row[1].strip() for row in rows if len(row) == 2}, "lost": lost}


def test_a_choice_is_measured_by_the_best_the_worst_and_the_next(call, tmp_path):
    rows = drawn(call, tmp_path, cluster({**PAIRS, **node("box", busy="0", links=PAIRS["links"])}), "--gpus", "2")

    # g0, of the better pair, is taken.
    assert float(rows["this choice"]) == pytest.approx(40, rel=0.1)
    assert float(rows["best conceivable, if every healthy GPU were free"]) == pytest.approx(80, rel=0.1)
    assert float(rows["worst possible now"]) < 20
    assert float(rows["runner-up: box: g1 g2"]) < 20
    assert rows["lost"].startswith("the rings of its slowest pod carry 10 GB/s, not 40")


@pytest.mark.parametrize(
    ("nodes", "words", "runner_up", "lost"),
    [
        ([node("a"), node("b", link="NV2")], ("--gpus", "4"), "b: g0 g1 g2 g3", "the rings of its slowest pod"),
        ([node("a", busy="0"), node("b")], ("--gpus", "3"), "b: g0 g1 g2", "it leaves 1 GPU free on its nodes, not 0"),
        ([node("a"), node("b")], ("--gpus", "4"), "b: g0 g1 g2 g3", "it is as good, and comes later in the order"),
        (
            [node("a", "r1", "h"), node("b", "r1", "h"), node("c", "r2", "h")],
            ("--gpus", "4"),
            "a: g0 g1 g2 g3",
            "8 GPUs free in its domain, not 4: the fuller one",
        ),
        # g2 is torn from its neighbour g3.
        ([node("box", gpus=8, busy="1")], ("--gpus", "2"), "box: g0 g2", "it is as good, but tears more"),
        ([node("box")], ("--gpus", "2"), "box: g2 g3", "it is as good, and comes later in the order"),
        (
            [node("a1", "r1"), node("a2", "r1"), node("b1", "r2"), node("b2", "r2"), node("b3", "r2")],
            ("--pods", "2", "--gpus-per-pod", "4"),
            "b1, b2",
            "it takes from a domain with room for 3 such pods, not 2",
        ),
        ([node("a", gpus=2), node("b", gpus=2, link="PIX")], ("--gpus", "1"), "a: g0", "its best link to another free GPU"),
        (
            [node("a", "r1", "h"), node("b", "r1", "h"), node("c", "r2", "h")],
            ("--pods", "2", "--gpus-per-pod", "4"),
            "a, c",
            "it is spread over hall",
        ),
    ],
)
def test_the_runner_up_is_the_next_best_and_loses_by_the_first_part_of_the_objective(
    call, tmp_path, nodes, words, runner_up, lost
):
    rows = drawn(call, tmp_path, cluster(*nodes), *words)

    assert f"runner-up: {runner_up}" in rows
    assert rows["lost"].startswith(lost)


def test_a_choice_without_alternative_has_null_for_it(place):
    answer = place(cluster(node("a")), "--gpus", "4").answer

    assert (answer["runner_up"], answer["runner_up_reason"]) == (None, None)
    assert answer["best_gbps"] == answer["worst_gbps"] == answer["predicted_allreduce_gbps"]


def test_what_has_no_alternative_has_no_runner_up(call, tmp_path):
    rows = drawn(call, tmp_path, cluster(node("a")), "--gpus", "4")

    assert rows["lost"] == ""
    assert len({value for key, value in rows.items() if key != "lost"}) == 1


def test_the_worst_stays_within_the_limits_and_the_required_level(call, tmp_path):
    slow = node("b", "r2", "h", link="PIX")
    snapshot = cluster(node("a1", "r1", "h"), node("a2", "r1", "h"), slow)
    within = drawn(call, tmp_path, snapshot, "--pods", "2", "--gpus-per-pod", "2", "--required-level", "node")
    anywhere = drawn(call, tmp_path, snapshot, "--pods", "2", "--gpus-per-pod", "2")
    limited = drawn(call, tmp_path, snapshot, "--gpus", "2", "--max-link", "NV1")

    assert within["worst possible now"] == within["this choice"]
    assert float(anywhere["worst possible now"]) < float(anywhere["this choice"])
    assert limited["worst possible now"] == limited["this choice"]


def test_a_refusal_is_drawn_with_what_would_help(call, tmp_path):
    (tmp_path / "c.json").write_text(json.dumps(cluster(node("a1", busy="0"))))
    result = call("--cluster", "c.json", "--gpus", "4")

    assert result.code == 1
    assert "not feasible: needs 4 GPUs on one node" in result.out
    assert "3 of 4 GPUs fit; the number of GPUs binds" in result.out


def test_a_refused_gang_is_drawn_with_what_fits_and_what_binds(call, tmp_path):
    (tmp_path / "c.json").write_text(json.dumps(cluster(node("a1", "r1", "h"), node("b1", "r2", "h"))))
    result = call("--cluster", "c.json", "--pods", "2", "--gpus-per-pod", "4", "--required-level", "row")

    assert "1 of 2 pods fits; the required level binds" in result.out


def test_several_requests_are_drawn_one_after_the_other(call, tmp_path):
    (tmp_path / "c.json").write_text(json.dumps(cluster(node("[bold]"))))
    (tmp_path / "r.json").write_text('[{"gpus": 4}, {"gpus": 1}]')
    result = call("--cluster", "c.json", "--requests", "r.json")

    assert (result.code, result.err) == (0, "")
    assert "request 1" in result.out
    assert "request 2" in result.out
    # A name is no markup.
    assert "[bold]" in result.out


# -- input that cannot be used ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), ("--gpus K",)),
        (("--gpus", "many"), ("--gpus", "integer")),
        (("--gpus", "0"), ("--gpus", "from 1")),
        (("--gpus", "-1"), ("--gpus", "from 1")),
        (("--gpus", "1", "--pods", "2"), ("either --gpus", "--pods and --gpus-per-pod")),
        (("--pods", "2"), ("--gpus-per-pod",)),
        (("--gpus-per-pod", "2"), ("--pods",)),
        (("--gpus", "1", "--required-level", "rwo"), ("--required-level", "'rwo'", "node, row, hall")),
        (("--gpus", "1", "--preferred-level", ""), ("--preferred-level", "''")),
        (("--gpus", "1", "--max-link", "FAST"), ("--max-link", "'FAST'", "NV<n>")),
        (("--gpus", "1", "--near-nic", ""), ("--near-nic",)),
        (("--gpus", "1", "--mode", "worst"), ("--mode", "tightest-domain")),
        (("--gpus", "1", "-o", "xml"), ("--output", "json")),
        (("--gpus", "1", "--seed", "-1"), ("--seed",)),
        (("--gpus",), ("--gpus",)),
        (("--gpu", "1"), ("--gpu",)),
        (("--gpus", "1", "surplus"), ("surplus",)),
    ],
)
def test_a_flag_that_cannot_be_used_is_one_line(place, flags, words):
    refused(place(cluster(node("box", "r", "h")), *flags), *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("neither JSON nor YAML",)),
        ("null", ("neither JSON nor YAML",)),
        ("nvidia-smi has failed", ("neither JSON nor YAML",)),
        ('{"version": 1,\n "nodes": [}', ("line 2", "JSON")),
        ("[]", ("is no snapshot",)),
        ('{"version": 9, "nodes": []}', ("version: 9",)),
        ('{"nodes": [{"name": "n", "gpus": [{"id": "a", "numa": 1e999}]}]}', ("nodes[0].gpus[0].numa",)),
        ("[" * 100_000, ("JSON",)),
        ('{"nodes": ' + "[" * 950 + "]" * 950 + "}", ()),
        ("nodes: [{name: n, gpus: [{id: a, healthy: yes}]}]", ("nodes[0].gpus[0].healthy", "'yes'")),
        ("a: &a [1]\n" + "b: &b [" + "*a, " * 9 + "]\n", ("is no snapshot",)),
    ],
)
def test_a_snapshot_that_cannot_be_used_is_one_line_that_names_file_and_element(call, tmp_path, text, words):
    (tmp_path / "bad").write_text(text)

    refused(call("--cluster", "bad", "--gpus", "1", "-o", "json"), "bad: ", *words)


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ({"gpus": 1}, ("no list of requests",)),
        ([{"gpus": 1}, {"gpus": 1, "max_link": "NV"}], ("[1].max_link", "NV<n>")),
        ([{"gpus": 1, "required_level": "rwo"}], ("[0].required_level", "node, row, hall")),
        ([{"gpu": 1}], ("[0].gpu", "gpus_per_pod")),
    ],
)
def test_requests_that_cannot_be_used_are_one_line_that_names_file_and_element(place, requests, words):
    refused(place(cluster(node("box", "r", "h")), requests=requests), "asked.json: ", *words)


NICS: dict[str, Any] = {"nics": [f"net{i}" for i in range(10)], "nic_links": {"g0-net1": "PIX"}}


def test_a_nic_that_no_node_has_is_one_line_with_those_that_there_are(place):
    listed = cluster(node("a", **NICS), node("b"))

    refused(place(listed, "--gpus", "1", "--near-nic", "eth9"), "--near-nic: 'eth9'", "net0, ", "net7 and 2 more")
    refused(place(listed, requests=[{"gpus": 1, "near_nic": "eth9"}]), "asked.json: [0].near_nic: 'eth9'")
    assert place(listed, "--gpus", "1", "--near-nic", "net1").where == [("a", "g0")]


def test_where_no_node_lists_nics_any_gpus_are_taken_and_that_is_told(place):
    assert place(cluster(node("a")), "--gpus", "1", "--near-nic", "eth9").codes == ["nic-unknown"]


def test_a_field_of_a_gpu_that_is_not_read_is_told(place):
    typo = node("box", gpus=2)
    typo["gpus"][1]["healty"] = False
    result = place(cluster(typo), "--gpus", "2")

    assert result.answer["warnings"] == [
        {"code": "field-unknown", "message": "box: not read: 'healty' is no field of a GPU"},
    ]


def test_the_weights_of_the_configuration_count_on_a_snapshot(place, tmp_path):
    mixed = cluster(node("box", gpus=3, links={"g0-g1": "NV2", "g1-g2": "PIX", "g0-g2": "SYS"}))
    (tmp_path / "slow.yaml").write_text("weights: {gbps: [{link: NV2, gbps: 0.1}]}\n")

    assert place(mixed, "--gpus", "2").where == [("box", "g0 g1")]
    assert place(mixed, "--gpus", "2", "--config", "slow.yaml").where == [("box", "g1 g2")]


def test_what_a_snapshot_has_no_use_for_is_one_line(place, monkeypatch):
    one = cluster(node("box"))

    refused(place(one, "--gpus", "1", "--config", "none.yaml"), "none.yaml", "cannot be read")
    refused(place(one, "--gpus", "1", "--kubeconfig", "k"), "--kubeconfig", "--cluster")
    refused(place(one, "--gpus", "1", "--resource", "nvidia.com/gpu"), "--resource", "snapshot")
    monkeypatch.setenv("KUBECONFIG", "/etc/kube.conf")
    assert place(one, "--gpus", "1").code == 0


def test_what_is_asked_is_said_once(place):
    refused(place(cluster(), "--gpus", "1", requests=[{"gpus": 1}]), "--requests", "--gpus")
    refused(place(cluster(), "--same-numa", requests=[{"gpus": 1}]), "--requests", "--same-numa")


def test_files_that_are_not_there_are_one_line(call):
    refused(call("--cluster", "none.json", "--gpus", "1"), "none.json", "No such file")
    refused(call("--cluster", "-", "--requests", "-"), "standard input")


def test_without_a_cluster_to_read_it_is_one_line(call):
    refused(call("--gpus", "1"), "--kubeconfig", "KUBECONFIG", "~/.kube/config is not there")
    refused(call("--gpus", "1", "--kubeconfig", "none"), "kubeconfig none")


# -- live ---------------------------------------------------------------------------------------------------------------


class Api:
    """An API server that holds these nodes and pods, in pages of two."""

    def __init__(self, nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> None:
        lists = {"/api/v1/nodes": nodes, "/api/v1/pods": pods}
        asked: list[tuple[str, str, dict[str, str]]] = []
        self.asked = asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(url.query).items()}
                asked.append((self.command, url.path, query))
                begin = int(query.get("continue", 0))
                items = lists.get(url.path, [])
                meta = {"resourceVersion": "1", "continue": str(begin + 2) if begin + 2 < len(items) else ""}
                text = json.dumps({"metadata": meta, "items": items[begin : begin + 2]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def kubeconfig(self) -> str:
        server = f"http://127.0.0.1:{self.server.server_port}"
        named = {"clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}]}
        contexts = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
        return yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **named, "contexts": contexts, "current-context": "x"})


def live_node(name: str, *, resource: str = "nvidia.com/gpu", taint: str = "", **document: Any) -> dict[str, Any]:
    ids = [f"g{i}" for i in range(4)]
    whole = {
        "version": 1,
        "kind": "node",
        "gpus": [{"id": gpu, "uuid": f"GPU-{name}-{gpu}", "numa": 0} for gpu in ids],
        "links": [{"a": a, "b": b, "type": "NV6"} for a, b in combinations(ids, 2)],
        **document,
    }
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "labels": {"topology.kubernetes.io/zone": "z"},
            "annotations": {"pyscheduler.io/topology": json.dumps(whole)},
        },
        "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}] if taint else []},
        "status": {"allocatable": {resource: "4"}, "capacity": {resource: "4"}},
    }


def live_pod(name: str, on: str, gpus: list[str] | None, *, count: int, scheduler: str = "gpu-topology") -> dict[str, Any]:
    annotations = {} if gpus is None else {"pyscheduler.io/gpus": json.dumps({"c": [f"GPU-{on}-{gpu}" for gpu in gpus]})}
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": name, "annotations": annotations},
        "spec": {
            "nodeName": on,
            "schedulerName": scheduler,
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(count)}}}],
        },
        "status": {"phase": "Running"},
    }


@pytest.fixture
def live(call, tmp_path) -> Iterator[Any]:
    """Call it on a live cluster of these nodes and pods."""
    servers: list[Api] = []

    def called(nodes: list[dict[str, Any]], pods: list[dict[str, Any]], *words: str) -> Run:
        servers.append(Api(nodes, pods))
        (tmp_path / "kubeconfig").write_text(servers[-1].kubeconfig())
        result = call("--kubeconfig", "kubeconfig", "-o", "json", *words)
        assert {method for method, _, _ in servers[-1].asked} == {"GET"}
        return result

    yield called
    for server in servers:
        server.server.shutdown()
        server.server.server_close()


def test_on_a_live_cluster_what_pods_hold_is_not_free_and_nodes_that_take_nothing_are_left_out(live):
    nodes = [live_node("n1"), live_node("n2", taint="node.kubernetes.io/unschedulable"), live_node("n3", taint="example.com/ml")]
    pods = [
        live_pod("p1", "n1", ["g1", "g3"], count=2),
        live_pod("p2", "n3", ["g0"], count=1),
        live_pod("p3", "n3", None, count=1),
    ]

    pair = live(nodes, pods, "--gpus", "2")
    assert pair.where == [("n1", "g0 g2")]
    assert pair.answer["pods"][0]["uuids"] == ["GPU-n1-g0", "GPU-n1-g2"]
    # p3 holds a GPU of n3 that nobody can name; n2 is cordoned.
    assert live(nodes, pods, "--gpus", "4").code == 1


def test_a_live_cluster_with_several_gpu_resources_asks_for_one(live):
    nodes = [live_node("n1"), live_node("a1", resource="amd.com/gpu", complete=False)]

    refused(live(nodes, [], "--gpus", "1"), "--resource", "amd.com/gpu and nvidia.com/gpu")
    refused(live(nodes, [], "--gpus", "1", "--resource", "intel.com/gpu"), "intel.com/gpu: no node has it")
    amd = live(nodes, [], "--gpus", "2", "--resource", "amd.com/gpu")
    assert [name for name, _ in amd.where] == ["a1"]
    assert "topology-incomplete" in amd.codes


def slow_pair(gbps: float) -> dict[str, Any]:
    """Return a node whose pair g0-g1 was measured, and the others as usual."""
    pairs = [("g0", "g1", gbps), ("g0", "g2", 110.0), ("g1", "g3", 111.0), ("g2", "g3", 109.0)]
    measured = [{"tool": "p2p-bandwidth", "gpus": [a, b], "gbps": speed, "nodes": 1} for a, b, speed in pairs]
    return live_node("n1", measured=measured)


def test_a_slow_link_is_told_once_and_only_to_who_gets_it(live):
    whole = live([slow_pair(20.0)], [], "--gpus", "4")

    assert [w for w in whole.codes if w == "link-slow"] == ["link-slow"]
    assert whole.answer["warnings"][whole.codes.index("link-slow")]["message"].startswith("n1: link g0-g1 ")
    assert "link-slow" not in live([slow_pair(20.0)], [], "--gpus", "3").codes


# -- objects of a file --------------------------------------------------------------------------------------------------


def printed(*objects: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what kubectl prints of objects of several kinds."""
    return {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": kind, **raw} for kind, raw in objects]}


OTHER_MAP = {"metadata": {"name": "kube-root-ca.crt", "namespace": "ml"}, "data": {"ca.crt": "x"}}


def test_objects_of_a_file_are_read_as_those_of_a_live_cluster(place):
    done = live_pod("p0", "n1", ["g0", "g1", "g2"], count=3)
    done["status"]["phase"] = "Succeeded"
    objects = [
        ("Node", live_node("n1")),
        ("Node", live_node("n2", taint="node.kubernetes.io/unschedulable")),
        ("Pod", live_pod("p1", "n1", ["g1", "g3"], count=2)),
        ("Pod", done),
        ("ConfigMap", OTHER_MAP),
    ]
    result = place(printed(*objects), "--gpus", "2")

    assert result.where == [("n1", "g0 g2")]
    assert result.codes == []
    assert place(printed(*objects), "--gpus", "3").code == 1


def test_objects_of_a_file_are_read_under_the_configuration(place, tmp_path):
    (tmp_path / "ours.yaml").write_text("resources: [example.com/gpu]\n")
    nodes = printed(("Node", live_node("n1")), ("Node", live_node("e1", resource="example.com/gpu")))

    assert place(nodes, "--gpus", "1").where[0][0] == "n1"
    assert place(nodes, "--gpus", "1", "--config", "ours.yaml").where[0][0] == "e1"
    both = printed(("Node", live_node("n1")), ("Node", live_node("a1", resource="amd.com/gpu")))
    refused(place(both, "--gpus", "1"), "--resource")
    assert place(both, "--gpus", "1", "--resource", "amd.com/gpu").where[0][0] == "a1"


def test_units_of_cards_are_placed_as_whole_cards_and_a_card_of_which_a_part_is_taken_is_not_free(place):
    def pod(name: str, gpus: list[str] | None, units: str) -> tuple[str, dict[str, Any]]:
        raw = live_pod(name, "n1", gpus, count=0)
        raw["spec"]["containers"][0]["resources"]["limits"] = {"tencent.com/vcuda-core": units, "tencent.com/vcuda-memory": "30"}
        return "Pod", raw

    node = live_node("n1", resource="tencent.com/vcuda-core")
    node["status"] = {"allocatable": {"tencent.com/vcuda-core": "450"}, "capacity": {"tencent.com/vcuda-core": "450"}}
    whole, part = pod("whole", ["g1"], "100"), pod("part", None, "50")

    assert place(printed(("Node", node), whole), "--gpus", "3").where == [("n1", "g0 g2 g3")]
    assert place(printed(("Node", node), whole), "--gpus", "4").code == 1
    assert place(printed(("Node", node), whole, part), "--gpus", "2").code == 0
    assert place(printed(("Node", node), whole, part), "--gpus", "3").code == 1


def test_a_file_without_pods_says_that_all_counts_as_free(place):
    assert place(printed(("Node", live_node("n1"))), "--gpus", "1").codes == ["pods-missing"]


def test_objects_that_cannot_be_read_do_not_take_down_the_others(place):
    objects = [
        ("Node", live_node("n1")),
        ("Node", {"spec": {"taints": 7}}),
        ("Node", {"metadata": 3, "spec": {"taints": ["x"]}}),
        ("Pod", {"metadata": {"name": "p"}}),
    ]
    result = place(printed(*objects), "--gpus", "1")

    assert result.where[0][0] == "n1"
    assert sorted(result.codes) == ["node-unreadable", "node-unreadable", "pod-unreadable"]


def test_objects_without_a_node_are_one_line(place):
    refused(place(printed(("ConfigMap", OTHER_MAP)), "--gpus", "1"), "cluster.json: holds no Node objects", "kubectl get")
