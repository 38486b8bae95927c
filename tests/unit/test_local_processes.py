"""One process: started, found again, stopped; and never a stranger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.errors import ComponentFailedError
from deploy.local.layout import REPOSITORY
from deploy.local.processes import Command, Process, wait_ready

LONG = "import signal; print('up', flush=True); signal.pause()"
IGNORES_TERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"


class Starter:
    """Starts Python programs and kills what is left of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Process] = []

    def command(self, program: str) -> Command:
        return Command(
            name="program",
            argv=(sys.executable, "-c", program),
            log=self.folder / "program.log",
            pid_file=self.folder / "program.json",
            folder=self.folder,
        )

    def start(self, program: str, *, detached: bool = False) -> Process:
        process = Process.start(self.command(program), detached=detached)
        self.started.append(process)
        return process

    def start_ready(self, program: str) -> Process:
        process = self.start(program)
        wait_ready(process, lambda _: "up" in self.command(program).log.read_text(), self.command(program).log, 30)
        return process


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(tmp_path)
    yield starter
    for process in starter.started:
        process.kill()


def test_process_is_found_by_its_pid_file_and_stopped(starter: Starter) -> None:
    started = starter.start_ready(LONG)
    found = Process.find("program", starter.command(LONG).pid_file)
    assert found is not None
    assert found.pid == started.pid
    found.stop(grace_s=30)
    assert not found.is_running()
    assert started.exit_code == -signal.SIGTERM
    assert Process.find("program", starter.command(LONG).pid_file) is None


def test_process_that_ignores_the_request_is_killed(starter: Starter) -> None:
    process = starter.start_ready(IGNORES_TERM)
    process.stop(grace_s=0.1)
    assert process.exit_code == -signal.SIGKILL


def test_frozen_process_can_be_stopped(starter: Starter) -> None:
    process = starter.start_ready(LONG)
    process.send(signal.SIGSTOP)
    process.stop(grace_s=30)
    assert process.exit_code == -signal.SIGTERM


def test_stranger_with_the_same_pid_is_left_alone(starter: Starter) -> None:
    process = starter.start_ready(LONG)
    pid_file = starter.command(LONG).pid_file
    entry = json.loads(pid_file.read_text())
    pid_file.write_text(json.dumps({**entry, "started": entry["started"] + 1}))
    assert Process.find("program", pid_file) is None

    stranger = Process("program", process.pid, entry["started"] + 1)
    stranger.stop(grace_s=0)
    assert process.is_running()


@pytest.mark.parametrize("content", ["", "12", "{}", '{"pid": null, "started": 1}'])
def test_damaged_pid_file_names_no_process(tmp_path: Path, content: str) -> None:
    (tmp_path / "damaged.json").write_text(content)
    assert Process.find("program", tmp_path / "damaged.json") is None


def test_absent_pid_file_names_no_process(tmp_path: Path) -> None:
    assert Process.find("program", tmp_path / "absent.json") is None


def test_stopping_an_ended_process_does_nothing(starter: Starter) -> None:
    process = starter.start("pass")
    assert process.wait(timeout_s=30)
    process.stop(grace_s=0)
    process.kill()
    assert process.exit_code == 0


def test_end_before_ready_is_told_with_code_and_log(starter: Starter) -> None:
    program = "import sys; sys.exit('the disk is full')"
    process = starter.start(program)
    with pytest.raises(ComponentFailedError, match=r"(?s)program ended with code 1 .*the disk is full") as failure:
        wait_ready(process, lambda _: False, starter.command(program).log, timeout_s=30)
    assert not failure.value.port_taken


def test_taken_port_is_recognised(starter: Starter) -> None:
    program = "import sys; sys.exit('listen tcp 127.0.0.1:1: bind: address already in use')"
    process = starter.start(program)
    with pytest.raises(ComponentFailedError) as failure:
        wait_ready(process, lambda _: False, starter.command(program).log, timeout_s=30)
    assert failure.value.port_taken


def test_process_that_is_never_ready_is_told(starter: Starter) -> None:
    process = starter.start_ready(LONG)
    with pytest.raises(ComponentFailedError, match=r"program was not ready after 0.1 s"):
        wait_ready(process, lambda _: False, starter.command(LONG).log, timeout_s=0.1)


@pytest.mark.parametrize(("detached", "survives"), [(False, False), (True, True)])
def test_only_a_detached_process_outlives_its_parent(tmp_path: Path, detached: bool, survives: bool) -> None:
    """The parent is a Python process of its own, which is killed without a chance to clean up."""
    parent = f"""
import os, signal, sys
from pathlib import Path
from deploy.local.processes import Command, Process
folder = Path({str(tmp_path)!r})
command = Command(name="child", argv=(sys.executable, "-c", {LONG!r}), log=folder / "log",
                  pid_file=folder / "child.json", folder=folder)
Process.start(command, detached={detached})
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", parent], env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, check=False)
    assert ended.returncode == -signal.SIGKILL
    child = json.loads((tmp_path / "child.json").read_text())
    process = Process("child", child["pid"], child["started"])
    assert process.wait(timeout_s=1 if survives else 30) is not survives
    process.kill()
