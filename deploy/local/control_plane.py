"""The control plane as a whole: started in order, watched, and stopped in order.

Concurrency contract: a `ControlPlane` belongs to the thread that started it; its processes die with that thread
unless they are detached.
"""

from __future__ import annotations

import fcntl
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml

from deploy.local import components, users
from deploy.local.api import Api
from deploy.local.components import Component, Factory, Ports, Replica
from deploy.local.errors import AlreadyRunningError, ComponentFailedError, NotRunningError
from deploy.local.layout import BINARIES, DEFAULT_ROOT, REPOSITORY, Layout
from deploy.local.processes import Process, wait_ready
from deploy.local.scheduler_config import Election, Profiles, document

_HERE: Final = Path(__file__).parent
_ROLES: Final = (REPOSITORY / "deploy" / "rbac", _HERE / "rbac")
_STAGES: Final = _HERE / "stages.yaml"
# Another process may take a free port between the choice and its use.
_ATTEMPTS: Final = 3
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_SCHEDULERS: Final = (*(replica.scheduler for replica in components.REPLICAS), components.DEFAULT_SCHEDULER)
_GRACE_S: Final = 15.0


class Mode(StrEnum):
    """How the profile gpu-topology is run."""

    REPLACE = "replace"
    """One scheduler serves default-scheduler and gpu-topology."""
    BESIDE = "beside"
    """A second scheduler serves gpu-topology; the cluster's own is left alone."""
    DEFAULT_ONLY = "default-only"
    """Kubernetes as it comes: neither gpu-topology nor the Python service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to start.

    Attributes
    ----------
    root
        Folder for all state and logs.
    mode
        How the profile gpu-topology is run.
    service
        Settings of the Python service besides those that the control plane gives it.
    replicated
        Whether two schedulers run, each with a service of its own (`components.REPLICAS`), of which one is elected. Where
        `processes.can_name_host` is false they cannot be started.
    audit
        Whether the API server records what services ask it to change (`Layout.audit`).
    simulator
        Whether the device managers of the simulated nodes are played. Without it pods with GPUs are bound, and stay
        Pending.
    release_delay_s
        Seconds that a simulated node holds the devices of an ended pod.
    detached
        Whether the components outlive this process.
    binaries
        Folder of the programs.

    """

    root: Path = DEFAULT_ROOT
    mode: Mode = Mode.REPLACE
    service: Mapping[str, object] = field(default_factory=dict)
    replicated: bool = False
    audit: bool = False
    simulator: bool = True
    release_delay_s: float = 0.0
    detached: bool = False
    binaries: Path = BINARIES


# What our scheduler serves.
_PROFILES: Final = {
    Mode.REPLACE: Profiles.BOTH,
    Mode.BESIDE: Profiles.GPU_ONLY,
    Mode.DEFAULT_ONLY: Profiles.DEFAULT_ONLY,
}
# In the place of the cluster's own scheduler ours is elected by the same Lease, so that never both lead; beside it by
# one of its own, so that both can.
_LEASES: Final = {Mode.REPLACE: "kube-scheduler", Mode.BESIDE: "gpu-topology", Mode.DEFAULT_ONLY: "kube-scheduler"}
_AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "Request", "users": [users.SERVICE.name]},
        {"level": "None"},
    ],
}


class ControlPlane:
    """A running control plane; as a context manager it stops at the end."""

    def __init__(self, layout: Layout, parts: Mapping[str, Component], *, detached: bool) -> None:
        self.layout = layout
        self._parts = parts
        self._detached = detached
        self._processes: dict[str, Process] = {}

    @classmethod
    def start(cls, options: Options) -> Self:
        """Start all components and wait until they are ready.

        Raises
        ------
        AlreadyRunningError
            If a control plane runs in the folder.
        BinaryMissingError
            If a program has not been built.
        ComponentFailedError
            If a component ends or does not become ready. All others are stopped then.
        UnusableFolderError
            If the folder cannot hold the state.

        """
        layout = Layout.of(options.root)
        layout.claim()
        with _sole_starter(layout):
            _refuse_second(layout)
            for _ in range(_ATTEMPTS - 1):
                try:
                    return cls._start(layout, options)
                except ComponentFailedError as failure:
                    if not failure.port_taken:
                        raise
            return cls._start(layout, options)

    @classmethod
    def _start(cls, layout: Layout, options: Options) -> Self:
        layout.create()
        factory = Factory(layout, Ports.free(), options.binaries)
        plane = cls(layout, _parts(factory, options), detached=options.detached)
        users.write_credentials(layout, factory.server)
        try:
            plane._launch(components.ETCD, components.API_SERVER)
            _grant(plane.api)
            schedulers = [name for name in plane._parts if name in _SCHEDULERS]
            plane._launch(*(name for name in plane._parts if name not in (*plane._processes, *schedulers)))
            plane._launch(*schedulers)  # last: before its service is there a scheduler would put pods off
        except BaseException:
            plane.stop()
            raise
        return plane

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the user who may do everything."""
        return self.layout.kubeconfig(users.ADMIN.name)

    @cached_property
    def api(self) -> Api:
        """Client of the user who may do everything."""
        return Api(self.kubeconfig)

    def api_of(self, user: users.User) -> Api:
        """Return a client with the rights of one component."""
        return Api(self.layout.kubeconfig(user.name))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the components."""
        return tuple(self._parts)

    def process(self, name: str) -> Process:
        """Return the process of a component that was started."""
        return self._processes[name]

    def check(self) -> None:
        """Raise `ComponentFailedError` if a component has ended by itself."""
        for name, process in self._processes.items():
            if not process.is_running():
                raise ComponentFailedError(name, f"has ended with code {process.exit_code}", self.layout.log(name))

    def start_component(self, name: str) -> None:
        """Start a component that was stopped or killed, and wait until it is ready."""
        self._launch(name)

    def stop_component(self, name: str) -> None:
        """Ask a component to end and wait until it has."""
        self._processes.pop(name).stop(_GRACE_S)

    def kill_component(self, name: str) -> None:
        """End a component at once, without its knowledge."""
        self._processes.pop(name).kill()

    def restart_component(self, name: str) -> None:
        """Stop and start a component."""
        self.stop_component(name)
        self.start_component(name)

    @contextmanager
    def frozen_component(self, name: str) -> Iterator[None]:
        """Keep a component from running: it holds its connections and answers nothing."""
        process = self._processes[name]
        process.send(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send(signal.SIGCONT)

    def stop(self) -> None:
        """Stop all components in order, remove all state but the logs."""
        for name in components.STOP_ORDER:
            if process := self._processes.pop(name, None):
                process.stop(_GRACE_S)
        self.layout.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _launch(self, *names: str) -> None:
        """Start components at once, then wait for each: they find one another by trying."""
        for name in names:
            self._processes[name] = Process.start(self._parts[name].command, detached=self._detached)
        for name in names:
            part = self._parts[name]
            wait_ready(self._processes[name], part.probe, part.command.log, part.ready_s)


def started(layout: Layout) -> tuple[str, ...]:
    """Return the components of a folder that were started and not stopped, whether or not they run still."""
    return tuple(name for name in reversed(components.STOP_ORDER) if layout.pid_file(name).exists())


def running(layout: Layout) -> dict[str, Process]:
    """Return the running components of a folder, whoever started them, in the order in which they are stopped."""
    found = ((name, Process.find(name, layout.pid_file(name))) for name in components.STOP_ORDER)
    return {name: process for name, process in found if process}


def stop(layout: Layout) -> tuple[str, ...]:
    """Stop the control plane of a folder, whoever started it; its logs stay.

    Returns
    -------
    tuple of str
        Names of the components that were stopped; empty if all had ended by themselves.

    Raises
    ------
    NotRunningError
        If none runs there.

    """
    if not started(layout):
        raise NotRunningError(f"{layout.root}: no control plane runs there")
    found = running(layout)
    for process in found.values():
        process.stop(_GRACE_S)
    layout.discard()
    return tuple(found)


def _refuse_second(layout: Layout) -> None:
    for name, process in running(layout).items():
        raise AlreadyRunningError(
            f"{layout.root} already runs a control plane ({name} is pid {process.pid}): "
            f"use it, or end it with `python -m deploy.local down --dir {layout.root}`"
        )


def _parts(factory: Factory, options: Options) -> dict[str, Component]:
    audit = _write_yaml(factory.layout.config / "audit.yaml", _AUDIT) if options.audit else None
    parts = [factory.etcd(), factory.api_server(audit), factory.controller_manager(), factory.kwok(_STAGES)]
    replicas = components.REPLICAS if options.replicated else components.REPLICAS[:1]
    election = Election(_LEASES[options.mode]) if options.replicated else None
    for replica in replicas:
        if options.mode is not Mode.DEFAULT_ONLY:
            parts.append(_service(factory, replica, election, options.service))
        parts.append(_scheduler(factory, replica, election, options.mode))
    if options.mode is Mode.BESIDE:
        parts.append(_default_scheduler(factory))
    if options.simulator:
        parts.append(factory.simulator(options.release_delay_s))
    return {part.name: part for part in parts}


def _service(factory: Factory, replica: Replica, election: Election | None, settings: Mapping[str, object]) -> Component:
    layout = factory.layout
    given: dict[str, object] = {
        "socket": str(layout.socket_of(replica.service)),
        "kubeconfig": str(layout.kubeconfig(users.SERVICE.name)),
        "http_port": 0,
        "log_format": "json",
    }
    if election:
        given |= {"lease": f"{election.namespace}/{election.lease}", "host": replica.host}
    config = _write_yaml(layout.config / f"{replica.service}.yaml", {**given, **settings})
    return factory.service(replica.service, config)


def _scheduler(factory: Factory, replica: Replica, election: Election | None, mode: Mode) -> Component:
    layout = factory.layout
    user = users.GPU_SCHEDULER if mode is Mode.BESIDE else users.SCHEDULER
    content = document(_PROFILES[mode], layout.kubeconfig(user.name), layout.socket_of(replica.service), election)
    config = _write_yaml(layout.config / f"{replica.scheduler}.yaml", content)
    return factory.scheduler(replica.scheduler, config, user, host=replica.host if election else None)


def _default_scheduler(factory: Factory) -> Component:
    layout, name = factory.layout, components.DEFAULT_SCHEDULER
    content = document(Profiles.DEFAULT_ONLY, layout.kubeconfig(users.SCHEDULER.name), layout.socket)
    return factory.scheduler(name, _write_yaml(layout.config / f"{name}.yaml", content), users.SCHEDULER)


def _write_yaml(path: Path, content: Mapping[str, object]) -> Path:
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False))
    return path


def _grant(api: Api) -> None:
    """Create the roles of our own components."""
    _await_namespaces(api)
    for file in sorted(path for folder in _ROLES for path in folder.glob("*.yaml")):
        for manifest in yaml.safe_load_all(file.read_text()):
            namespace = manifest["metadata"].get("namespace")
            scope = f"{_RBAC}/namespaces/{namespace}" if namespace else _RBAC
            api.create(f"{scope}/{manifest['kind'].lower()}s", manifest)


def _await_namespaces(api: Api) -> None:
    """Wait for the namespaces that the API server makes for itself, shortly after it says that it is ready."""
    for name in ("kube-system", "kube-node-lease", "default"):
        api.wait_for("/api/v1/namespaces", lambda _: True, name=name)


@contextmanager
def _sole_starter(layout: Layout) -> Iterator[None]:
    """Keep two that start in the same folder at once from mixing their files."""
    with (layout.root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(f"{layout.root}: a control plane is being started there; wait for it") from None
        yield
