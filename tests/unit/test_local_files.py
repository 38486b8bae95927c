"""What the control plane writes before it starts anything: folders, credentials, configurations."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from deploy.local import users
from deploy.local.components import STOP_ORDER, Factory, Ports
from deploy.local.control_plane import Mode, Options, _parts
from deploy.local.errors import BinaryMissingError, UnusableFolderError
from deploy.local.layout import REPOSITORY, Layout, binary
from deploy.local.scheduler_config import Profiles, document

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout.of(tmp_path / "plane")
    layout.claim()
    layout.create()
    return layout


@pytest.fixture
def factory(layout: Layout, tmp_path: Path) -> Factory:
    for name in PROGRAMS:
        (tmp_path / name).touch()
    return Factory(layout, Ports(1, 2, 3, 4, 5), tmp_path)


def test_folder_of_others_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UnusableFolderError, match="holds files that are not of a control plane"):
        Layout.of(tmp_path).claim()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnusableFolderError, match="cannot be written"):
        Layout.of(tmp_path / "file").claim()


def test_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableFolderError, match="too long for a unix socket"):
        Layout.of(tmp_path / ("x" * 100)).claim()


def test_new_control_plane_begins_with_empty_folders(layout: Layout) -> None:
    leftover = layout.etcd / "data"
    leftover.mkdir()
    layout.socket.touch()
    old_log = layout.log("etcd")
    old_log.touch()
    layout.claim()
    layout.create()
    assert not any(path.exists() for path in (leftover, layout.socket, old_log))


def test_discarding_keeps_the_logs(layout: Layout) -> None:
    layout.log("etcd").write_text("of interest")
    layout.discard()
    assert layout.log("etcd").read_text() == "of interest"
    assert not layout.run.exists()


def test_missing_program_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(BinaryMissingError, match=r"kwok is not in .*: run `make build`"):
        binary("kwok", tmp_path)


def test_every_user_has_its_own_token_that_only_the_owner_reads(layout: Layout) -> None:
    users.write_credentials(layout, "https://127.0.0.1:1")
    rows = [line.split(",") for line in (layout.pki / "tokens.csv").read_text().splitlines()]
    tokens = {name: token for token, name, *_ in rows}
    assert set(tokens) == {user.name for user in users.ALL}
    assert len(set(tokens.values())) == len(users.ALL)
    for user in users.ALL:
        path = layout.kubeconfig(user.name)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert yaml.safe_load(path.read_text())["users"][0]["user"]["token"] == tokens[user.name]


def test_only_the_admin_may_do_everything() -> None:
    assert [user.name for user in users.ALL if user.groups] == ["admin"]


def test_ports_differ() -> None:
    ports = Ports.free()
    assert len({getattr(ports, name) for name in Ports.__slots__}) == len(Ports.__slots__)


@pytest.mark.parametrize(
    ("profiles", "names"),
    [
        (Profiles.DEFAULT_ONLY, ["default-scheduler"]),
        (Profiles.GPU_ONLY, ["gpu-topology"]),
        (Profiles.BOTH, ["default-scheduler", "gpu-topology"]),
    ],
)
def test_scheduler_serves_the_chosen_profiles(profiles: Profiles, names: list[str]) -> None:
    served = document(profiles, Path("/kubeconfig"), Path("/socket"))["profiles"]
    assert [profile["schedulerName"] for profile in served] == names


def test_default_profile_is_untouched() -> None:
    profiles = document(Profiles.BOTH, Path("/kubeconfig"), Path("/socket"))["profiles"]
    assert profiles[0] == {"schedulerName": "default-scheduler"}


def test_plugin_is_told_the_socket_and_stands_first_where_it_must() -> None:
    [profile] = document(Profiles.GPU_ONLY, Path("/kubeconfig"), Path("/run/p.sock"))["profiles"]
    assert profile["pluginConfig"] == [{"name": "GPUTopology", "args": {"endpoint": "unix:///run/p.sock"}}]
    first = {point for point, plugins in profile["plugins"].items() if {"name": "GPUTopology"} in plugins["enabled"]}
    assert first == {"filter", "postFilter", "bind"}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (Mode.REPLACE, {"pyscheduler", "kube-scheduler"}),
        (Mode.BESIDE, {"pyscheduler", "kube-scheduler", "default-scheduler"}),
        (Mode.DEFAULT_ONLY, {"kube-scheduler"}),
    ],
)
def test_each_mode_has_its_components(factory: Factory, mode: Mode, expected: set[str]) -> None:
    parts = set(_parts(factory, Options(mode=mode)))
    always = {"etcd", "kube-apiserver", "kube-controller-manager", "kwok", "simulator"}
    assert parts == always | expected
    assert parts <= set(STOP_ORDER)


def test_no_token_shows_in_a_command_line(factory: Factory) -> None:
    users.write_credentials(factory.layout, factory.server)
    tokens = [line.split(",")[0] for line in (factory.layout.pki / "tokens.csv").read_text().splitlines()]
    for part in _parts(factory, Options(mode=Mode.BESIDE)).values():
        assert not any(token in argument for token in tokens for argument in part.command.argv)


def test_service_takes_settings_besides_those_of_the_control_plane(factory: Factory) -> None:
    _parts(factory, Options(service={"log_level": "debug"}))
    config = yaml.safe_load((factory.layout.config / "pyscheduler.yaml").read_text())
    assert config["log_level"] == "debug"
    assert config["socket"] == str(factory.layout.socket)


def test_roles_grant_no_wildcards() -> None:
    for path in [*REPOSITORY.glob("deploy/rbac/*.yaml"), *REPOSITORY.glob("deploy/local/rbac/*.yaml")]:
        for manifest in yaml.safe_load_all(path.read_text()):
            for rule in manifest.get("rules", []):
                assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], path
