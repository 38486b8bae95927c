"""The components of the control plane: how each is started and says that it is ready."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from deploy.local import probes, users
from deploy.local.layout import REPOSITORY, Layout, binary
from deploy.local.processes import Command, Probe

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
DEFAULT_SCHEDULER: Final = "default-scheduler"
SERVICE: Final = "pyscheduler"
KWOK: Final = "kwok"
SIMULATOR: Final = "simulator"


@dataclass(frozen=True, slots=True)
class Replica:
    """One of two schedulers with the service beside it, as in one pod; `host` is the host name of that pod."""

    scheduler: str
    service: str
    host: str


REPLICAS: Final = (
    Replica(SCHEDULER, SERVICE, "replica-1"),
    Replica("kube-scheduler-2", "pyscheduler-2", "replica-2"),
)

# The API server hangs for minutes, and holds its port, when etcd goes before it; the others only log errors when the
# API server goes before them, but a scheduler without its service would refuse pods that nobody else then places.
STOP_ORDER: Final = (
    *(replica.scheduler for replica in REPLICAS),
    DEFAULT_SCHEDULER,
    *(replica.service for replica in REPLICAS),
    CONTROLLER_MANAGER,
    SIMULATOR,
    KWOK,
    API_SERVER,
    ETCD,
)

SIMULATED_LABEL: Final = "pyscheduler.io/simulated"

# Names as etcd writes them: a unix socket in the working folder. No port, and nobody but the owner can reach it.
_ETCD_CLIENTS: Final = "client.sock:0"
_ETCD_PEERS: Final = "peer.sock:0"

_CONTROLLERS: Final = (
    "deployment-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
)
# kwok renews a lease every quarter of this; the node lifecycle controller gives up on a node after 50 s.
_LEASE_S: Final = 40
# Defaults for a person's cluster (20) would make 1,000 nodes and their pods take minutes.
_CONTROLLER_QPS: Final = 1000


@dataclass(frozen=True, slots=True)
class Component:
    """One component.

    Attributes
    ----------
    command
        How it is started.
    probe
        Whether it is ready.
    ready_s
        Seconds that it may take to be ready.

    """

    command: Command
    probe: Probe
    ready_s: float = 60.0

    @property
    def name(self) -> str:
        """Name of the component."""
        return self.command.name


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports on the loopback interface."""

    api_server: int
    controller_manager: int
    scheduler: int
    default_scheduler: int
    kwok: int
    second_scheduler: int = 0

    @classmethod
    def free(cls) -> Ports:
        """Return ports that nobody listens on now."""
        with ExitStack() as held:
            sockets = [held.enter_context(socket.socket()) for _ in cls.__slots__]
            for each in sockets:
                each.bind(("127.0.0.1", 0))
            return cls(*(each.getsockname()[1] for each in sockets))


@dataclass(frozen=True, slots=True)
class Factory:
    """Makes the components that live in one folder."""

    layout: Layout
    ports: Ports
    binaries: Path
    environment: Mapping[str, str] = field(default_factory=lambda: {"PYTHONPATH": str(REPOSITORY)})

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self.ports.api_server}"

    def etcd(self) -> Component:
        """Return etcd: data that nobody needs after a crash of the machine, so without fsync."""
        peers = f"unix://{_ETCD_PEERS}"
        arguments = (
            "--data-dir=data",
            "--unsafe-no-fsync",
            f"--listen-client-urls=unix://{_ETCD_CLIENTS}",
            f"--advertise-client-urls=unix://{_ETCD_CLIENTS}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        )
        folder = self.layout.etcd
        return Component(self._program(ETCD, *arguments, folder=folder), probes.listens(folder / _ETCD_CLIENTS))

    def api_server(self, audit_policy: Path | None = None) -> Component:
        """Return kube-apiserver; it signs a serving certificate for itself, whose key signs service account tokens.

        `audit_policy` is a file that says which requests it records in `Layout.audit`, each before it is answered.
        """
        audit = (f"--audit-policy-file={audit_policy}", f"--audit-log-path={self.layout.audit}") if audit_policy else ()
        pki = self.layout.pki
        arguments = (
            f"--etcd-servers=unix://{_ETCD_CLIENTS}",
            f"--secure-port={self.ports.api_server}",
            "--bind-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={pki}",
            # Nobody has a client certificate: the authority's key was never kept. But without these the others fill
            # their logs with complaints that they cannot find out who may sign one.
            f"--client-ca-file={pki / 'apiserver.crt'}",
            f"--requestheader-client-ca-file={pki / 'apiserver.crt'}",
            "--requestheader-allowed-names=nobody",
            f"--token-auth-file={pki / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki / 'apiserver.crt'}",
            f"--service-account-signing-key-file={pki / 'apiserver.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--delete-collection-workers=16",
            "--profiling=false",
            *audit,
        )
        probe = probes.https(self.ports.api_server, "/readyz", pki / "apiserver.crt")
        # In the folder of etcd: the name of its socket is relative.
        return Component(self._program(API_SERVER, *arguments, folder=self.layout.etcd), probe)

    def controller_manager(self) -> Component:
        """Return kube-controller-manager; each controller acts as its own service account."""
        arguments = (
            *self._clients_of(users.CONTROLLER_MANAGER),
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports.controller_manager}",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--kube-api-qps={_CONTROLLER_QPS}",
            f"--kube-api-burst={_CONTROLLER_QPS}",
            f"--controllers={','.join(_CONTROLLERS)}",
        )
        probe = probes.https(self.ports.controller_manager, "/healthz")
        return Component(self._program(CONTROLLER_MANAGER, *arguments), probe)

    def scheduler(self, name: str, config: Path, user: users.User, host: str | None = None) -> Component:
        """Return kube-scheduler with a configuration file, as one of `REPLICAS` or as `DEFAULT_SCHEDULER`.

        `user` is who it is to the API server; `host` is the host name that it sees, by which it is known in the Lease and
        in Bindings.
        """
        port = {SCHEDULER: self.ports.scheduler, DEFAULT_SCHEDULER: self.ports.default_scheduler}.get(
            name, self.ports.second_scheduler
        )
        arguments = (
            f"--config={config}",
            *self._clients_of(user)[1:],
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "-v=2",
        )
        command = self._command(name, str(binary(SCHEDULER, self.binaries)), *arguments)
        return Component(replace(command, host_name=host), probes.https(port, "/readyz"))

    def service(self, name: str, config: Path) -> Component:
        """Return the Python service with a configuration file, as one of `REPLICAS`."""
        command = self._command(name, sys.executable, "-m", "pyscheduler", "serve", "--config", str(config))
        return Component(command, probes.serves(self.layout.socket_of(name)))

    def kwok(self, stages: Path) -> Component:
        """Return kwok, which plays the kubelets of the simulated nodes."""
        arguments = (
            f"--kubeconfig={self.layout.kubeconfig(users.KWOK.name)}",
            f"--config={stages}",
            f"--manage-nodes-with-label-selector={SIMULATED_LABEL}=true",
            f"--node-lease-duration-seconds={_LEASE_S}",
            f"--server-address=127.0.0.1:{self.ports.kwok}",
        )
        return Component(self._program(KWOK, *arguments), probes.http(self.ports.kwok, "/readyz"))

    def simulator(self, release_delay_s: float) -> Component:
        """Return the node simulator, which plays the device managers of the simulated nodes."""
        ready = self.layout.run / "simulator.ready"
        arguments = (
            "--kubeconfig",
            str(self.layout.kubeconfig(users.SIMULATOR.name)),
            "--release-delay",
            f"{release_delay_s:g}",
            "--ready-file",
            str(ready),
        )
        command = self._command(SIMULATOR, sys.executable, "-m", "deploy.local", "simulate", *arguments)
        return Component(command, probes.names_itself(ready))

    def _clients_of(self, user: users.User) -> tuple[str, str, str]:
        path = self.layout.kubeconfig(user.name)
        return f"--kubeconfig={path}", f"--authentication-kubeconfig={path}", f"--authorization-kubeconfig={path}"

    def _program(self, name: str, *arguments: str, folder: Path | None = None) -> Command:
        return self._command(name, str(binary(name, self.binaries)), *arguments, folder=folder)

    def _command(self, name: str, *argv: str, folder: Path | None = None) -> Command:
        return Command(
            name=name,
            argv=argv,
            log=self.layout.log(name),
            pid_file=self.layout.pid_file(name),
            folder=folder or self.layout.root,
            environment=self.environment,
        )
