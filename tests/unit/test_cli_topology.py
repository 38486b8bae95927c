"""`pyscheduler topology parse`: bytes to a document, a picture, or one line that says why not."""

from __future__ import annotations

import io
import json
import sys

import pytest
import yaml
from rich.console import Console

from pyscheduler.cli import input_text
from pyscheduler.cli.main import main
from pyscheduler.cli.topology_picture import draw
from pyscheduler.readers import formats
from pyscheduler.readers.reading import RefusedError

MATRIX = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\tPXB\t0-31\t0\nGPU1\tNV4\t X \tSYS\t32-63\t1\n"
TREE = "SwitchName=leaf-1 Nodes=n[1-2]\nSwitchName=spine-1 Switches=leaf-1\n"


class Run:
    """One call of the command line."""

    def __init__(self, monkeypatch, capfd, *words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["pyscheduler", "topology", "parse", *words])
        with pytest.raises(SystemExit) as end:
            main()
        self.code = end.value.code or 0
        self.out, self.err = capfd.readouterr()


@pytest.fixture
def run(monkeypatch, capfd):
    return lambda *words: Run(monkeypatch, capfd, *words)


@pytest.fixture
def file(tmp_path):
    def write(content: str | bytes) -> str:
        path = tmp_path / "input.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def refused(result: Run, *words: str) -> None:
    assert result.code == 2
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert all(word in result.err for word in words)


def test_json_holds_one_document(run, file):
    result = run(file(MATRIX), "-o", "json")

    assert result.code == 0
    document = json.loads(result.out)
    assert (document["version"], document["kind"], document["format"], document["complete"]) == (1, "node", "nvidia-smi", True)
    assert document["links"] == [{"a": "GPU0", "b": "GPU1", "type": "NV4"}]


def test_text_draws_tree_matrix_and_warnings(run, file):
    result = run(file(MATRIX.replace("NV4\t X", "PHB\t X")))

    assert result.code == 0
    assert "NUMA node 1" in result.out
    assert "PHB" in result.out
    assert "direction-mismatch" in result.out


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks(run, file, encoding):
    assert run(file(MATRIX.encode(encoding)), "-o", "json").code == 0


def test_standard_input(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MATRIX.encode())))

    assert run("-", "-o", "json").code == 0


def test_a_refusal_is_one_line_with_file_line_and_quote(run, file):
    path = file("\nNVIDIA-SMI has failed\n")

    refused(run(path, "-o", "json"), path, "line 2", "NVIDIA-SMI has failed", "nvidia-smi-p2p")
    refused(run(path, "--format", "nvidia-smi"), path, "line 2", "NVIDIA-SMI has failed")


def test_a_refusal_quotes_the_file_and_not_its_json(run, file):
    refused(run(file("ERROR: no value\n")), 'line 1: no reader recognises "ERROR: no value"')


def test_other_inputs_that_cannot_be_used(run, file, tmp_path):
    refused(run(str(tmp_path / "none")), "cannot be read")
    refused(run(str(tmp_path)), "cannot be read")
    refused(run(file("")), "empty")
    refused(run(file(MATRIX), "--format", "nvidia"), "not known", "rocm-smi")
    refused(run(file(MATRIX), "--format", "slurm"), "input.txt")


OWN = {
    "version": 1,
    "kind": "node",
    "gpus": [{"id": "a", "numa": 1}, {"id": "b", "numa": "x"}],
    "links": [{"a": "b", "b": "a", "type": "NV4"}, {"a": "a", "b": "q", "type": "NV1"}],
    "complete": False,
}


@pytest.mark.parametrize("text", [json.dumps(OWN), yaml.safe_dump(OWN)], ids=["json", "yaml"])
@pytest.mark.parametrize("words", [(), ("--format", "document")])
def test_our_own_document_is_printed_as_it_is_understood(run, file, text, words):
    document = json.loads(run(file(text), "-o", "json", *words).out)

    assert (document["format"], document["complete"]) == ("document", False)
    assert document["gpus"] == [{"id": "a", "numa": 1}, {"id": "b"}]
    assert document["links"] == [{"a": "a", "b": "b", "type": "NV4"}]
    # The link to what is not there.
    assert [warning["code"] for warning in document["warnings"]] == ["link-unusable"]
    assert "NV4" in run(file(text)).out


def test_our_own_document_that_cannot_be_used_is_one_line(run, file):
    refused(run(file(json.dumps({**OWN, "gpus": []}))), "input.txt: ", "lists no GPUs")
    refused(run(file(MATRIX), "--format", "document"), "is no node document")


def test_results_of_a_benchmark_are_sent_to_merge(run, file):
    rows = "   D\\D     0      1 \n     0 1500.00  90.00 \n     1  91.00 1499.00 \n"
    text = f"[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\nUnidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n{rows}"

    refused(
        run(file(text)), "input.txt: holds results of a benchmark: give it to `topology merge` with a file that lists the GPUs"
    )


def test_too_large_a_file(run, file, monkeypatch):
    monkeypatch.setattr(input_text, "LIMIT_BYTES", 1 << 20)

    refused(run(file(b" " * ((1 << 20) + 1))), "larger than 1 MiB")


def test_yaml_is_read_as_json():
    assert json.loads(input_text.as_json("a: [1, 2]\n---\nb: 2020-01-01\n") or "") == [{"a": [1, 2]}, {"b": "2020-01-01"}]
    assert input_text.as_json("just words") is None
    assert input_text.as_json("a: [") is None
    assert input_text.as_json("[" * 100_000) is None
    assert input_text.as_json("a: &a [*a]\n") is None


@pytest.mark.parametrize(
    "text", ["010", "1.10", "yes", "No", "0x1f", "1_000", "12:30:45", "2027-03-01", "1e3", ".inf", "9" * 19, "-0", "Null", "="]
)
def test_what_yaml_would_make_a_value_of_stays_text(text):
    assert json.loads(input_text.as_json(f"rack: {text}\n{text}: 1\n") or "") == {"rack": text, text: 1}


def test_what_json_writes_the_same_is_a_value():
    text = "numa: 12\noffset: -3\nhealthy: true\nshared: false\nname:\nhost: ~\npath: null\nlabel: '7'\n"
    expected = {
        "numa": 12,
        "offset": -3,
        "healthy": True,
        "shared": False,
        "name": None,
        "host": None,
        "path": None,
        "label": "7",
    }

    assert json.loads(input_text.as_json(text) or "") == expected


def test_yaml_mappings_are_merged():
    assert json.loads(input_text.as_json("a: &a {x: 1}\nb: {<<: *a, y: 2}\n") or "")["b"] == {"x": 1, "y": 2}


def test_labels_of_yaml_are_the_domains_as_written(run, file):
    nodes = "".join(
        f"- metadata:\n    name: n{number}\n    labels:\n      network.topology.nvidia.com/leaf: {leaf}\n  kind: Node\n"
        for number, leaf in enumerate(("010", "1.10", "yes"))
    )
    result = run(file(nodes), "-o", "json")

    assert [node["path"] for node in json.loads(result.out)["nodes"]] == [["010"], ["1.10"], ["yes"]]


def test_yaml_aliases_that_explode_are_refused(monkeypatch):
    monkeypatch.setattr(input_text, "LIMIT_BYTES", 1 << 20)
    levels = [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)]

    with pytest.raises(RefusedError, match="aliases"):
        input_text.as_json("a: &a [1, 2, 3]\n" + "".join(levels))


def test_every_format_is_named_as_its_reader_says():
    assert all(formats.named(name) is reader for name, reader in formats.FORMATS.items())
    assert len(formats.FORMATS) == 15


def picture(document: dict[str, object]) -> str:
    console = Console(file=io.StringIO(), width=120)
    draw({"warnings": [], **document}, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_fabric_is_drawn_as_a_tree(run, file):
    result = run(file(TREE))

    assert [word for word in ("spine-1", "leaf-1", "n2") if word not in result.out] == []
    assert "unknown" in picture({"kind": "fabric", "levels": ["leaf"], "nodes": [{"name": "n[1]", "path": [None]}]})


def test_metrics_are_drawn_as_a_table():
    entry = {"node": None, "uuid": "GPU-[a]", "mig": "3", "metric": "util", "value": 91}
    drawn = picture({"kind": "metrics", "series": [entry] * 201, "discarded": [entry]})

    assert "GPU-[a] MIG 3" in drawn
    assert "1 more" in drawn
    assert "1 values discarded" in drawn
