"""The configuration: every problem at once, with its path and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyscheduler.config import Config
from pyscheduler.errors import ConfigError


def _file(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def test_defaults_hold_without_a_file() -> None:
    config = Config.load(None)
    assert config.scheduler_name == "gpu-topology"
    assert config.resources == ("nvidia.com/gpu", "amd.com/gpu")


def test_file_is_read_and_the_command_line_wins(tmp_path: Path) -> None:
    path = _file(tmp_path, "socket: /a\nhttp_port: 0\nlevels: [rack]\n")
    config = Config.load(path, socket="/b", kubeconfig=None)
    assert (config.socket, config.http_port, config.levels, config.kubeconfig) == ("/b", 0, ("rack",), None)


def test_empty_file_means_the_defaults(tmp_path: Path) -> None:
    assert Config.load(_file(tmp_path, "")) == Config()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("sockett: /a", "sockett: unknown; known are socket,", id="unknown key"),
        pytest.param("http_port: 70000", "http_port: 70000 must be a whole number from 0 to 65535", id="port out of range"),
        pytest.param("http_port: true", "http_port: True must be", id="a truth value is no port"),
        pytest.param("log_format: xml", "log_format: 'xml' is none of json, text", id="unknown format"),
        pytest.param("resources: []", "resources: () must be a list of names", id="no resource"),
        pytest.param("levels: rack", "levels: 'rack' must be a list of names", id="a text is no list"),
        pytest.param(f"socket: /{'x' * 120}", "longer than 107 bytes", id="socket path that the kernel refuses"),
        pytest.param("- a", "must be a mapping", id="a list"),
        pytest.param("a: [", "is not YAML", id="not YAML"),
    ],
)
def test_bad_configuration_is_refused_with_path_and_fix(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.load(_file(tmp_path, text))
    assert says in str(caught.value)
    assert "config.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_problems_are_listed_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.load(_file(tmp_path, "x: 1\nhttp_port: -1\nlog_level: loud"))
    assert all(key in str(caught.value) for key in ("x:", "http_port:", "log_level:"))


def test_missing_file_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name an existing file with --config"):
        Config.load(tmp_path / "none.yaml")
