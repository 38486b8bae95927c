"""`pyscheduler topology merge`: files on one machine to the text of its annotation."""

from __future__ import annotations

import json
import sys

import pytest

from pyscheduler.cli.main import main
from pyscheduler.core.machine.links import Link
from pyscheduler.readers import node_document

MATRIX = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV2\tPHB\t0-7\t0\nGPU1\tNV2\t X \tSYS\t8-15\t1\n"
XML = (
    "<nvidia_smi_log><attached_gpus>2</attached_gpus>"
    "<gpu id='00000000:3B:00.0'><product_name>Tesla V100-PCIE-16GB</product_name><uuid>GPU-0123abcd-01</uuid></gpu>"
    "<gpu id='00000000:5E:00.0'><product_name>Tesla V100-PCIE-16GB</product_name><uuid>GPU-0123abcd-02</uuid></gpu>"
    "</nvidia_smi_log>"
)
P2P = (
    "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n"
    "   D\\D     0      1 \n     0 780.10  48.30 \n     1  48.10 781.20 \n"
)
TREE = "SwitchName=leaf-1 Nodes=n[1-2]\n"


class Run:
    """One call of the command line."""

    def __init__(self, monkeypatch, capfd, *words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["pyscheduler", "topology", "merge", *words])
        with pytest.raises(SystemExit) as end:
            main()
        self.code = end.value.code or 0
        self.out, self.err = capfd.readouterr()


@pytest.fixture
def run(monkeypatch, capfd, tmp_path):
    """Call it in a folder with these files."""

    def call(*words: str, **files: str) -> Run:
        monkeypatch.chdir(tmp_path)
        for name, content in files.items():
            (tmp_path / name).write_text(content)
        return Run(monkeypatch, capfd, *words)

    return call


def named(*hosts: str, text: str = MATRIX) -> str:
    return "".join(f"{host}: {line}\n" for host in hosts for line in text.splitlines())


def refused(result: Run, *words: str) -> None:
    assert result.code == 2
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert [word for word in words if word not in result.err] == []


def test_links_of_a_matrix_and_identities_of_a_query_make_one_line(run):
    result = run("topo", "query", topo=MATRIX, query=XML)

    assert (result.code, result.err) == (0, "")
    assert result.out.count("\n") == 1
    document = node_document.parse(result.out)
    assert [(gpu.uuid, gpu.pci, gpu.numa) for gpu in document.gpus] == [
        ("GPU-0123abcd-01", "0000:3b:00.0", 0),
        ("GPU-0123abcd-02", "0000:5e:00.0", 1),
    ]
    assert document.links == {(0, 1): Link.parse("NV2")}
    assert (document.source, document.boot_id, document.observed_at, document.complete) == ("file", None, None, True)
    assert (document.warnings, document.findings) == ((), ())


def test_what_the_caller_knows_is_in_the_document(run):
    words = ("--boot-id", "b-7", "--source", "operator", "--observed-at", "2027-03-01T10:00:00+01:00")
    document = json.loads(run("topo", *words, topo=MATRIX).out)

    assert (document["boot_id"], document["source"], document["observed_at"]) == ("b-7", "operator", "2027-03-01T09:00:00Z")


def test_a_document_is_an_input_too_and_keeps_what_it_says(run):
    known = run("topo", "--boot-id", "b-7", "--observed-at", "2027-03-01T10:00:00Z", topo=MATRIX).out
    again = json.loads(run("known", "query", known=known, query=XML).out)

    assert (again["boot_id"], again["observed_at"]) == ("b-7", "2027-03-01T10:00:00Z")
    assert again["gpus"][1]["uuid"] == "GPU-0123abcd-02"
    assert run("again", again=json.dumps(again)).out == run("known", "query").out


def test_results_of_a_benchmark_are_added_with_the_time_that_is_given(run):
    result = run("p2p", "topo", "--observed-at", "2027-03-01T10:00:00Z", p2p=P2P, topo=MATRIX)
    document = node_document.parse(result.out)

    assert {(m.tool, m.gpus, m.gbps, m.observed_at) for m in document.measured} == {
        ("p2p-bandwidth", ("GPU0", "GPU1"), 48.1, document.observed_at)
    }
    assert document.observed_at is not None


def test_contradictions_are_told_with_their_files_and_do_not_fail(run):
    result = run("one", "two", one=MATRIX, two=MATRIX.replace("NV2", "NV1"))

    assert result.code == 0
    assert result.err == "sources-disagree: GPU0-GPU1: link NV2 in one, NV1 in two; the weakest counts\n"
    assert [warning["code"] for warning in json.loads(result.out)["warnings"]] == ["sources-disagree"]


def test_a_warning_says_which_file_it_is_of(run):
    result = run("one", "two", one=MATRIX.replace("NV2\tPHB", "NV1\tPHB"), two=XML)

    assert result.err.startswith("direction-mismatch: one: GPU0-GPU1 is")


def test_text_is_drawn_as_parse_draws_it(run):
    result = run("topo", "query", "-o", "text", topo=MATRIX, query=XML)

    assert [word for word in ("NUMA node 1", "GPU-0123abcd-02", "NV2", "PHB") if word not in result.out] == []


def test_of_a_file_of_several_machines_one_is_named(run):
    text = named("n1") + named("n2", text=MATRIX.replace("NV2", "PIX").replace("PHB", "NODE"))

    refused(run("both", both=text), "both: holds 2 machines (n1, n2): cut it to one, or name one with --host H")
    refused(run("both", "--host", "n3"), "both: holds no machine n3, but n1, n2")
    document = node_document.parse(run("both", "query", "--host", "n2", query=XML).out)
    assert document.links == {(0, 1): Link.parse("PIX")}
    assert document.nic_links == {(0, 0): Link.parse("NODE"), (1, 0): Link.parse("SYS")}
    assert [gpu.uuid for gpu in document.gpus] == ["GPU-0123abcd-01", "GPU-0123abcd-02"]


def test_links_between_machines_are_not_taken(run):
    gpus = [{"id": f"GPU{at}", "host": host} for at, host in enumerate(("a", "a", "b"))]
    links = [{"a": "GPU0", "b": other, "type": "NV18"} for other in ("GPU1", "GPU2")]
    both = json.dumps({"version": 1, "kind": "node", "gpus": gpus, "links": links})

    document = json.loads(run("both", "--host", "a", both=both).out)
    assert document["links"] == [{"a": "GPU0", "b": "GPU1", "type": "NV18"}]
    assert "warnings" not in document


def test_files_of_different_machines_are_refused(run):
    refused(run("one", "two", one=named("n1"), two=named("n2")), "two: is of the machine n2, one of n1")
    refused(run("query", "other", query=XML, other=XML.replace("GPU-0123abcd", "GPU-4567abcd")), "GPU-4567abcd-01 in other")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nothing of use\n", 'input: line 1: no reader recognises "nothing of use"'),
        (TREE, "input: is of kind fabric, not node"),
        (P2P, "input: holds results of a benchmark; add a file that lists the GPUs"),
        ('{"kind": "node", "version": 1, "gpus": []}', "input: lists no GPUs"),
        ('{"kind": "node", "version": 7, "gpus": [{"id": "a"}]}', "input: has version 7"),
        ('{"kind": "node", "gpus": 3}', "input: has version None"),
        ("", "input: the input is empty"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(run, text, reason):
    refused(run("input", input=text), reason)


def test_other_inputs_that_cannot_be_used(run):
    refused(run("missing"), "missing: cannot be read")
    refused(run("topo", "--observed-at", "yesterday", topo=MATRIX), "--observed-at yesterday: is no time")
    refused(run("topo", "--observed-at", "2027-03-01T10:00:00"), "with its zone")
    refused(run("topo", "small", small=MATRIX.replace("GPU1", "GPU9")), "small has 2 GPUs known by id only")
