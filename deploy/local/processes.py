"""Start, watch and end one process; find it again from another process.

A process is known by its pid and its start time, so a pid that the system has given to a stranger is never signalled.
Linux only: it reads /proc and waits on pidfds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deploy.local.errors import ComponentFailedError

_PROBE_INTERVAL_S: Final = 0.05
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_CLONE_NEWUTS: Final = 0x04000000  # linux/sched.h
_CLONE_NEWUSER: Final = 0x10000000
_LIBC: Final = ctypes.CDLL(None, use_errno=True)

# Fields of /proc/<pid>/stat after the command's name, which may itself hold spaces: proc(5), fields 3 and 22.
_STATE: Final = 0
_START_TIME: Final = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How to start a component.

    Attributes
    ----------
    name
        Name of the component.
    argv
        Program and arguments.
    log
        File that takes its output; it is appended to.
    pid_file
        File that lets other processes find it.
    folder
        Working folder.
    environment
        Variables besides those of this process.
    host_name
        Host name that it sees (see `can_name_host`); None is that of the machine.

    """

    name: str
    argv: tuple[str, ...]
    log: Path
    pid_file: Path
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    host_name: str | None = None


class Process:
    """A process that was started here or found by its pid file."""

    def __init__(self, name: str, pid: int, started: int, child: subprocess.Popen[bytes] | None = None) -> None:
        self.name = name
        self.pid = pid
        self._started = started
        self._child = child

    @classmethod
    def start(cls, command: Command, *, detached: bool) -> Process:
        """Start a process and write its pid file.

        Parameters
        ----------
        command
            What to start.
        detached
            Whether it outlives this process. If not, the kernel kills it when the thread that started it ends.

        """
        with command.log.open("ab") as log:
            child = subprocess.Popen(
                command.argv,
                cwd=command.folder,
                env={**os.environ, **command.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must not reach all at once: they end in order
                preexec_fn=_preparation(command.host_name, detached=detached),  # noqa: PLW1509 - it takes no lock
            )
        started = _start_time(child.pid) or 0
        command.pid_file.write_text(json.dumps({"pid": child.pid, "started": started}))
        return cls(command.name, child.pid, started, child)

    @classmethod
    def find(cls, name: str, pid_file: Path) -> Process | None:
        """Return the running process that a pid file names; None if it has ended."""
        try:
            entry = json.loads(pid_file.read_text())
            process = cls(name, int(entry["pid"]), int(entry["started"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return process if process.is_running() else None

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal; None if it runs or is not a child of this process."""
        return self._child.poll() if self._child else None

    def is_running(self) -> bool:
        """Whether it has not ended."""
        if self._child:
            return self._child.poll() is None
        return _start_time(self.pid) == self._started

    def wait(self, timeout_s: float) -> bool:
        """Wait until it ends; return whether it has."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.is_running():
                return True
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            ended = bool(poll.poll(timeout_s * 1000))
        finally:
            os.close(descriptor)
        return ended and not self.is_running()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def stop(self, grace_s: float) -> None:
        """Ask it to end, and kill it when it has not after `grace_s` seconds. Does nothing if it has ended."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)  # a stopped process acts on SIGTERM only once it goes on
        if not self.wait(grace_s):
            self.kill()

    def kill(self) -> None:
        """End it at once and wait until it is gone."""
        self.send(signal.SIGKILL)
        if not self.wait(timeout_s=60):
            raise TimeoutError(f"{self.name} (pid {self.pid}) is still there 60 s after SIGKILL: its disk may hang")


Probe = Callable[[Process], bool]


def wait_ready(process: Process, probe: Probe, log: Path, timeout_s: float) -> None:
    """Wait until a probe says yes.

    Raises
    ------
    ComponentFailedError
        If the process ends, or the time-out passes, before that.

    """
    deadline = time.monotonic() + timeout_s
    while not probe(process):
        if process.wait(_PROBE_INTERVAL_S):
            raise ComponentFailedError(process.name, f"ended with code {process.exit_code} before it was ready", log)
        if time.monotonic() > deadline:
            raise ComponentFailedError(process.name, f"was not ready after {timeout_s:g} s", log)


def can_name_host() -> bool:
    """Return whether processes can be given host names of their own here: as root, or where users may make namespaces."""
    try:
        done = subprocess.run([sys.executable, "-c", ""], preexec_fn=lambda: _name_host("other"), check=False)
    except subprocess.SubprocessError:
        return False
    return done.returncode == 0


def _preparation(host_name: str | None, *, detached: bool) -> Callable[[], None]:
    """Return what the child does before it becomes the program."""
    parent = os.getpid()

    def prepare() -> None:
        if host_name is not None:
            _name_host(host_name)
        if not detached:
            _die_with(parent)  # last: the kernel forgets it when a process enters a user namespace

    return prepare


def _die_with(parent: int) -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _name_host(name: str) -> None:
    """Give the calling process, and those that it starts, a host name of its own."""
    user, group = os.geteuid(), os.getegid()
    if _LIBC.unshare(_CLONE_NEWUTS) != 0:
        # Without the right to do that one needs a user namespace, in which one is nobody but oneself.
        if _LIBC.unshare(_CLONE_NEWUTS | _CLONE_NEWUSER) != 0:
            raise OSError(ctypes.get_errno(), "no namespace for a host name")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    socket.sethostname(name)


def _start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if there is none or only its exit code is left."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STATE] in "ZX" else int(fields[_START_TIME])
