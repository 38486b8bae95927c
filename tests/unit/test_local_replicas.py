"""Two schedulers on one machine: each with a service, a socket and a host name of its own, and one Lease."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deploy.local import control_plane
from deploy.local.components import REPLICAS, STOP_ORDER, Component, Factory, Ports
from deploy.local.control_plane import Mode, Options
from deploy.local.layout import REPOSITORY, Layout
from deploy.local.processes import Command, Process, can_name_host

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")


@pytest.fixture
def factory(tmp_path: Path) -> Factory:
    layout = Layout.of(tmp_path / "plane")
    layout.claim()
    layout.create()
    for name in PROGRAMS:
        (tmp_path / name).touch()
    return Factory(layout, Ports(1, 2, 3, 4, 5, 6), tmp_path)


def parts(factory: Factory, mode: Mode = Mode.REPLACE, **options: bool) -> dict[str, Component]:
    return control_plane._parts(factory, Options(mode=mode, **options))  # type: ignore[arg-type]


def config(factory: Factory, name: str) -> dict[str, object]:
    content: dict[str, object] = yaml.safe_load((factory.layout.config / f"{name}.yaml").read_text())
    return content


def test_each_replica_has_its_own_socket_host_name_and_port(factory: Factory) -> None:
    made = parts(factory, replicated=True)
    assert set(made) <= set(STOP_ORDER)
    seen = set()
    for replica in REPLICAS:
        service, scheduler = config(factory, replica.service), config(factory, replica.scheduler)
        endpoint = scheduler["profiles"][-1]["pluginConfig"][0]["args"]["endpoint"]  # type: ignore[index]
        assert endpoint == f"unix://{service['socket']}"
        assert service["host"] == made[replica.scheduler].command.host_name == replica.host
        port = next(each for each in made[replica.scheduler].command.argv if each.startswith("--secure-port="))
        seen |= {endpoint, replica.host, port}
    assert len(seen) == 6


@pytest.mark.parametrize(
    ("mode", "lease"),
    [
        pytest.param(Mode.REPLACE, "kube-scheduler", id="in the place of the cluster's own scheduler"),
        pytest.param(Mode.BESIDE, "gpu-topology", id="beside it, which holds the usual Lease"),
    ],
)
def test_schedulers_and_services_name_one_lease(factory: Factory, mode: Mode, lease: str) -> None:
    made = parts(factory, mode, replicated=True)
    for replica in REPLICAS:
        election = config(factory, replica.scheduler)["leaderElection"]
        assert election == {
            "leaderElect": True,
            "resourceNamespace": "kube-system",
            "resourceName": lease,
            "leaseDuration": "6s",
            "renewDeadline": "4s",
            "retryPeriod": "1s",
        }
        assert config(factory, replica.service)["lease"] == f"kube-system/{lease}"
    assert ("default-scheduler" in made) is (mode is Mode.BESIDE)


def test_service_may_read_the_leases_that_are_used_and_no_other(factory: Factory) -> None:
    [role] = [
        manifest
        for manifest in yaml.safe_load_all((REPOSITORY / "deploy" / "rbac" / "service.yaml").read_text())
        if manifest["metadata"]["name"] == "pyscheduler-lease"
    ]
    [rule] = role["rules"]
    assert set(rule["resourceNames"]) == set(control_plane._LEASES.values())
    assert rule["verbs"] == ["get", "list", "watch"]


def test_one_replica_is_not_elected(factory: Factory) -> None:
    made = parts(factory)
    assert config(factory, "kube-scheduler")["leaderElection"] == {"leaderElect": False}
    assert not {"lease", "host"} & config(factory, "pyscheduler").keys()
    assert made["kube-scheduler"].command.host_name is None
    assert not {"kube-scheduler-2", "pyscheduler-2"} & made.keys()


def test_what_services_change_is_recorded_on_demand(factory: Factory) -> None:
    assert not any("audit" in each for each in parts(factory)["kube-apiserver"].command.argv)
    arguments = parts(factory, audit=True)["kube-apiserver"].command.argv
    assert f"--audit-log-path={factory.layout.audit}" in arguments
    policy = yaml.safe_load((factory.layout.config / "audit.yaml").read_text())
    assert [rule["level"] for rule in policy["rules"]] == ["None", "Request", "None"]


def test_sockets_of_all_services_are_removed_at_the_end(factory: Factory) -> None:
    sockets = [factory.layout.socket_of(replica.service) for replica in REPLICAS]
    assert sockets[0] == factory.layout.socket
    for socket in sockets:
        socket.touch()
    factory.layout.discard()
    assert not any(socket.exists() for socket in sockets)


@pytest.mark.skipif(not can_name_host(), reason="needs root or user namespaces")
@pytest.mark.parametrize("detached", [False, True])
def test_process_sees_its_own_host_name_alone(tmp_path: Path, detached: bool) -> None:
    program = "import os, socket; print(socket.gethostname(), os.getuid())"

    def run(host_name: str | None) -> str:
        log = tmp_path / f"{host_name}.log"
        argv = (sys.executable, "-c", program)
        command = Command(name="program", argv=argv, log=log, pid_file=tmp_path / "pid", folder=tmp_path, host_name=host_name)
        process = Process.start(command, detached=detached)
        assert process.wait(30)
        assert process.exit_code == 0, log.read_text()
        return log.read_text()

    mine = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert run("replica-9").split() == ["replica-9", mine.split()[1]]
    assert run(None) == mine
