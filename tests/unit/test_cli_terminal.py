"""What reaches the terminal: one line for wrong use, and no character that steers it."""

from __future__ import annotations

import json
import sys

import pytest

from pyscheduler.cli import read_input
from pyscheduler.cli.main import main
from pyscheduler.readers import formats
from pyscheduler.readers.reading import RefusedError


@pytest.fixture
def call(monkeypatch, capfd):
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pyscheduler", *words])
        with pytest.raises(SystemExit) as end:
            main()
        return (int(end.value.code or 0), *capfd.readouterr())

    return run


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["topology", "parse"], "topology parse"),
        (["topology", "merge"], "topology merge"),
        (["topology", "parse", "--bad"], "topology parse"),
        (["topology", "lint", "-o", "xml"], "topology lint"),
        (["topology", "unheard"], "topology"),
        (["unheard"], ""),
        (["serve", "--bad"], "serve"),
        (["capacity", "n1"], "capacity"),
        (["doctor", "-o", "xml"], "doctor"),
        (["version", "more"], "version"),
    ],
)
def test_wrong_use_is_one_line_that_names_the_help(call, words, command):
    code, out, err = call(*words)

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.endswith(f"see `{' '.join(['pyscheduler', *command.split(), '--help'])}`\n")


@pytest.mark.parametrize("words", [[], ["topology"]])
def test_commands_of_a_group_are_listed_without_any(call, words):
    code, out, err = call(*words)

    assert (code, err) == (0, "")
    assert "Usage: pyscheduler" in out


ODD = "a\x1b[31m\x07\x9b\u202e\nb"


def test_names_in_a_picture_do_not_steer_the_terminal(call, tmp_path):
    gpus = [{"id": ODD, "model": ODD}, {"id": "other"}]
    links = [{"a": ODD, "b": "other", "type": "NV4"}]
    path = tmp_path / "n.json"
    path.write_text(json.dumps({"version": 1, "kind": "node", "complete": True, "gpus": gpus, "links": links}))
    for words in (["parse"], ["merge", "-o", "text"]):
        code, out, _ = call("topology", *words, str(path))

        assert code == 0
        assert "a?[31m????b" in out
        assert all(character.isprintable() for character in out.replace("\n", ""))


def test_an_error_is_one_line_whatever_the_file_is_called(call):
    code, _, err = call("topology", "parse", f"/none/{ODD}")

    assert (code, err.count("\n")) == (2, 1)
    assert "/none/a?[31m????b: cannot be read" in err


def test_problems_of_a_configuration_keep_their_lines(call, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text('"odd\\e[31m": 1\n"odd\\a": 1\n')
    code, _, err = call("serve", "--config", str(path))

    assert code == 2
    assert err.count("\n") > 1
    assert all(character.isprintable() for character in err.replace("\n", ""))


@pytest.mark.parametrize(
    "text",
    ["\n" * 200_001, "- a: 1\n" * 200_001, "[0] GPU0 X\n" * 200_001, "<\n" * 200_001, "x" * (4 * 1024 * 1024 + 1)],
    ids=["blank", "yaml", "labelled", "no-xml", "one-line"],
)
def test_text_that_is_longer_than_any_tool_prints_is_refused_unread(monkeypatch, text):
    monkeypatch.setattr(formats, "choose", lambda _: pytest.fail("a reader is asked"))

    with pytest.raises(RefusedError, match="longer than any tool prints"):
        read_input.reading(text)


def test_json_and_xml_may_be_longer_than_text():
    blank = "\n" * 200_001
    device = '<pci busid="0000:1a:00.0" class="0x030200"><gpu dev="0"/></pci>'

    assert read_input.reading(f'<system version="1">{blank}<cpu numaid="0">{device}</cpu></system>').format == "nccl-xml"
    document = {"version": 1, "kind": "node", "gpus": [{"id": "a"}]}
    assert read_input.reading(blank + json.dumps(document)).format == "document"
