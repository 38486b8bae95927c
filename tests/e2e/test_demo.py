"""`make demo` as a user runs it: the whole command, its results, and what it leaves behind."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.demo_scenario import PODS
from deploy.local.layout import REPOSITORY
from tests.e2e.command_line import command

TIMEOUT_S = 240


def demo(root: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "deploy.local", "demo", "--dir", str(root), *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A test runner in the background may have been told to ignore Ctrl-C; the demo must not inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )


def processes_in(root: Path) -> list[str]:
    """Return the command lines of the processes that work in a folder or name it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line, cwd = (folder / "cmdline").read_text().replace("\0", " "), str((folder / "cwd").readlink())
        except OSError:
            continue
        if str(root) in line or cwd.startswith(str(root)):
            found.append(line)
    return found


def left_in(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} - {".pyscheduler-local", "lock"}


def await_line(running: subprocess.Popen[str], text: str) -> None:
    assert running.stdout is not None
    assert any(text in line for line in running.stdout), f"the demo ended without printing {text!r}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "demo"


def test_shows_the_main_job_and_leaves_only_logs(root: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    running = demo(root, "--output-json", str(results))
    printed, _ = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == 0, printed
    got = json.loads(results.read_text())
    pods = {pod["pod"]: pod for pod in got["pods"]}
    assert set(pods) == {name for plan in PODS for name in plan.instances}
    assert (pods["lora"]["node"], pods["lora"]["gpus"]) == ("bridged-1", [2, 3])
    assert (pods["v100-train"]["node"], pods["v100-train"]["gpus"]) == ("dgx1v-1", [4, 5, 6, 7])
    assert (pods["v100-pair"]["node"], pods["v100-pair"]["gpus"]) == ("dgx1v-2", [5, 6])
    held = [(pod["node"], gpu) for pod in pods.values() for gpu in pod["gpus"]]
    assert len(held) == len(set(held))
    assert "6 too few" in got["pending"]["late-pretrain"]
    assert "ask for at most 8 per pod" in got["pending"]["nine-gpus"]
    assert f"logs are in {root / 'logs'}" in printed
    assert re.search(r"D v100-train +dgx1v-1 +4-7 +NV1 +80 ", printed)
    assert max(len(line) for line in printed.splitlines() if str(root) not in line) <= 100
    assert not processes_in(root)
    assert left_in(root) == {"logs"}


def test_kept_demo_serves_kubectl_and_ends_on_request(root: Path) -> None:
    running = demo(root, "--keep")
    printed, _ = running.communicate(timeout=TIMEOUT_S)
    try:
        assert running.returncode == 0, printed
        line = next(line for line in printed.splitlines() if line.startswith("kubectl") and "jsonpath" in line)
        kubectl = Path(sys.executable).with_name("kubectl")
        arguments = shlex.split(line)[1:]
        pods = subprocess.run([kubectl, *arguments], capture_output=True, text=True, check=True, timeout=60).stdout
        assert re.search(r'^lora\t\{"main":\["GPU-[^"]+","GPU-[^"]+"\]\}$', pods, re.MULTILINE)
        second = command("demo", "--dir", str(root))
        assert second.returncode == 1
        assert "end it with `make demo-stop`" in second.stderr
    finally:
        stopped = command("demo-stop", "--dir", str(root))
    assert stopped.returncode == 0, stopped.stderr
    assert not processes_in(root)
    assert left_in(root) == {"logs"}


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_cleans_up_even_what_was_to_be_kept(root: Path, number: signal.Signals) -> None:
    running = demo(root, "--keep")
    await_line(running, "all are ready")
    running.send_signal(number)
    printed, _ = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == 128 + number, printed
    assert not processes_in(root)
    assert left_in(root) == {"logs"}


@pytest.mark.long
def test_component_that_ends_is_named_with_its_log(root: Path) -> None:
    running = demo(root)
    await_line(running, "all are ready")
    scheduler = json.loads((root / "run" / "kube-scheduler.json").read_text())
    subprocess.run(["kill", "-KILL", str(scheduler["pid"])], check=True)
    printed, _ = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == 1
    assert f"kube-scheduler has ended with code -9; its log {root}/logs/kube-scheduler.log" in printed
    assert not processes_in(root)
    assert left_in(root) == {"logs"}
