"""Each component works with exactly the rights that are shipped in deploy/rbac, and can do nothing else."""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from deploy.local import components, probes, users
from deploy.local.api import Api, Object
from deploy.local.control_plane import ControlPlane
from deploy.local.devices import GPUS
from deploy.local.errors import ApiError
from deploy.local.layout import REPOSITORY, binary
from deploy.local.processes import Command, Process, wait_ready
from deploy.local.scheduler_config import Profiles, document
from deploy.local.simulated_nodes import NODES, TOPOLOGY
from deploy.local.users import User
from deploy.local.workspace import Workspace
from pyscheduler.readers.cards.memory_shards import SHARDS_MAX, shard_name
from tests.e2e.test_placement import gpus

SHIPPED: Final = REPOSITORY / "deploy" / "rbac"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS: Final = "/apis/authorization.k8s.io/v1"
LEASE: Final = "gpu-topology"

# Verb, API group, resource and name of the object; or verb and path.
Right = tuple[str, ...]

# What Kubernetes lets every user do that it knows.
EVERYBODY: Final = ("system:basic-user", "system:discovery", "system:public-info-viewer")
# What Kubernetes ships for its own scheduler: in the whole cluster, and by Roles in kube-system.
SCHEDULERS: Final = ("system:kube-scheduler", "system:volume-scheduler")
SERVING: Final = "extension-apiserver-authentication-reader"
ELECTED: Final = "system::leader-locking-kube-scheduler"


def rights(rules: Iterable[Mapping[str, Any]]) -> set[Right]:
    """Return the rights in the rules of a role, or of a review."""
    found: set[Right] = set()
    for rule in rules:
        of_objects = rule.get("apiGroups") or [], rule.get("resources") or [], rule.get("resourceNames") or [""]
        found |= set(itertools.product(rule["verbs"], *of_objects))
        found |= set(itertools.product(rule["verbs"], rule.get("nonResourceURLs") or []))
    return found


def shipped(file: str) -> dict[str, set[Right]]:
    """Return the rights in a file of deploy/rbac by namespace; those in the whole cluster under the empty one."""
    found: dict[str, set[Right]] = {"": set()}
    for role in yaml.safe_load_all((SHIPPED / file).read_text()):
        found.setdefault(role["metadata"].get("namespace", ""), set()).update(rights(role["rules"]))
    return found


def built_in(api: Api, *names: str, namespace: str = "") -> set[Right]:
    """Return the rights of ClusterRoles, or of Roles in a namespace, that Kubernetes makes for itself."""
    path = f"{RBAC}/namespaces/{namespace}/roles" if namespace else f"{RBAC}/clusterroles"
    return set().union(*(rights(api.get(f"{path}/{name}")["rules"]) for name in names))


def granted(api: Api, namespace: str) -> set[Right]:
    """Return what the API server says that the user of a client may do in a namespace."""
    status = api.create(f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": namespace}})["status"]
    assert not status["incomplete"]
    return rights([*status["resourceRules"], *status["nonResourceRules"]])


def may(api: Api, verb: str, group: str, resource: str, namespace: str, name: str = "") -> bool:
    kind, _, part = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": kind, "subresource": part, "namespace": namespace, "name": name}
    review = api.create(f"{REVIEWS}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": asked}})
    return bool(review["status"]["allowed"])


# Exactly


def test_service_may_do_what_is_shipped_and_no_more(control_plane: ControlPlane) -> None:
    given, everybody = shipped("service.yaml"), built_in(control_plane.api, *EVERYBODY)
    for namespace in (*given, "kube-node-lease"):
        of_namespace = given.get(namespace, set())
        assert granted(control_plane.api_of(users.SERVICE), namespace or "kube-public") == everybody | given[""] | of_namespace


def test_scheduler_beside_the_clusters_own_may_do_what_is_shipped_and_no_more(control_plane: ControlPlane) -> None:
    admin, own = control_plane.api, control_plane.api_of(users.GPU_SCHEDULER)
    given = shipped("scheduler.yaml")
    everywhere = built_in(admin, *EVERYBODY, *SCHEDULERS) | given[""]
    assert granted(own, "default") == everywhere
    assert granted(own, "kube-system") == everywhere | built_in(admin, SERVING, namespace="kube-system") | given["kube-system"]


def test_scheduler_in_the_place_of_the_clusters_own_needs_no_more_than_that(control_plane: ControlPlane) -> None:
    admin, own = control_plane.api, control_plane.api_of(users.SCHEDULER)
    everywhere = built_in(admin, *EVERYBODY, *SCHEDULERS)
    assert granted(own, "default") == everywhere
    assert granted(own, "kube-system") == everywhere | built_in(admin, SERVING, ELECTED, namespace="kube-system")


# Enough


def test_service_and_scheduler_do_their_work_and_are_refused_nothing(control_plane: ControlPlane, workspace: Workspace) -> None:
    good, bad = workspace.add_nodes("a100-pcie-bridged", 2)
    workspace.api.patch(f"{NODES}/{bad}", {"metadata": {"annotations": {TOPOLOGY: "{"}}})
    workspace.api.wait_for("/api/v1/namespaces/default/events", lambda event: event["involvedObject"]["name"] == bad)
    workspace.api.patch(f"{NODES}/{bad}", {"spec": {"unschedulable": True}})
    assert_schedules(workspace, good)
    layout = control_plane.layout
    for name in (components.SERVICE, components.SCHEDULER):
        assert refusals(layout.log(name)) == []


def test_scheduler_beside_the_clusters_own_is_elected_and_schedules(
    control_plane: ControlPlane, workspace: Workspace, tmp_path: Path
) -> None:
    (node,) = workspace.add_nodes("a100-pcie-bridged")
    control_plane.stop_component(components.SCHEDULER)
    log = tmp_path / "scheduler.log"
    try:
        process = start_beside(control_plane, tmp_path, log)
        try:
            assert_schedules(workspace, node)
            lease = workspace.api.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{LEASE}")
            assert lease["spec"]["holderIdentity"].startswith(f"{socket.gethostname()}_")
        finally:
            process.stop(15.0)
    finally:
        control_plane.start_component(components.SCHEDULER)
    assert refusals(log) == []


def assert_schedules(workspace: Workspace, node: str) -> None:
    """A pod is bound with its GPUs, another one is told why it waits and is bound later, a pod without GPUs too."""
    workspace.add_pod("first", workspace.pod_spec(3))
    assert len(gpus(workspace.wait_phase("first", "Running"))) == 3
    workspace.add_pod("second", workspace.pod_spec(2))
    workspace.wait_event("second", "needs 2 GPUs")
    workspace.add_pod("plain", workspace.pod_spec())
    workspace.wait_phase("plain", "Running")
    workspace.delete_pod("first")
    assert workspace.wait_phase("second", "Running")["spec"]["nodeName"] == node


def start_beside(plane: ControlPlane, folder: Path, log: Path) -> Process:
    """Start a scheduler with only our profile, in an account of its own, that is to be elected."""
    kubeconfig = plane.layout.kubeconfig(users.GPU_SCHEDULER.name)
    config = folder / "scheduler.yaml"
    election = {"leaderElect": True, "resourceNamespace": "kube-system", "resourceName": LEASE}
    config.write_text(
        yaml.safe_dump({**document(Profiles.GPU_ONLY, kubeconfig, plane.layout.socket), "leaderElection": election})
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = (
        f"--config={config}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
    )
    command = Command(
        name="scheduler beside",
        argv=(str(binary(components.SCHEDULER)), *arguments),
        log=log,
        pid_file=folder / "scheduler.pid",
        folder=folder,
    )
    process = Process.start(command, detached=False)
    wait_ready(process, probes.https(port, "/healthz"), log, 60.0)
    return process


def refusals(log: Path) -> list[str]:
    """Return the lines of a log that tell of a request which the API server did not allow."""
    refused = re.compile(r"is forbidden: User|answered 40[13]|: Unauthorized")
    # What is written to a namespace that is being deleted is refused whoever writes it.
    return [line for line in log.read_text().splitlines() if refused.search(line) and "being terminated" not in line]


# No more: verbs by which a component that was taken over could do harm

NO_COMPONENT_MAY: Final = [
    ("*", "*", "*"),
    ("get", "", "secrets"),
    ("list", "", "secrets"),
    ("create", "", "secrets"),
    ("create", "", "serviceaccounts/token"),
    ("impersonate", "", "users"),
    ("impersonate", "", "groups"),
    ("impersonate", "", "serviceaccounts"),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles"),
    ("bind", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("create", "rbac.authorization.k8s.io", "rolebindings"),
    ("patch", "rbac.authorization.k8s.io", "roles"),
    ("approve", "certificates.k8s.io", "signers"),
    ("delete", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("delete", "admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("patch", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("create", "", "pods"),
    ("patch", "", "pods"),
    ("update", "", "pods"),
    ("deletecollection", "", "pods"),
    ("create", "", "pods/exec"),
    ("create", "", "pods/eviction"),
    ("patch", "", "pods/ephemeralcontainers"),
    ("patch", "", "pods/resize"),
    ("create", "", "nodes"),
    ("patch", "", "nodes"),
    ("update", "", "nodes"),
    ("delete", "", "nodes"),
    ("patch", "", "nodes/status"),
    ("get", "", "nodes/proxy"),
    ("patch", "", "configmaps"),
    ("delete", "", "configmaps"),
    ("delete", "", "namespaces"),
    ("delete", "", "events"),
    ("delete", "coordination.k8s.io", "leases"),
    ("patch", "coordination.k8s.io", "leases"),
    ("patch", "batch", "jobs"),
    ("patch", "scheduling.k8s.io", "priorityclasses"),
]
SERVICE_MAY_NOT: Final = [
    ("get", "", "pods"),
    ("delete", "", "pods"),
    ("create", "", "pods/binding"),
    ("create", "", "bindings"),
    ("patch", "", "pods/status"),
    ("update", "", "pods/status"),
    ("update", "", "pods/finalizers"),
    ("patch", "", "events"),
    ("update", "", "events"),
    ("watch", "", "configmaps"),
    ("create", "coordination.k8s.io", "leases"),
    ("update", "coordination.k8s.io", "leases"),
    ("list", "", "persistentvolumeclaims"),
    ("create", "authentication.k8s.io", "tokenreviews"),
    ("create", "authorization.k8s.io", "subjectaccessreviews"),
]
COMPONENTS: Final = [users.SERVICE, users.SCHEDULER, users.GPU_SCHEDULER]


def _named(user: User) -> str:
    return user.name.removeprefix("system:")


@pytest.mark.parametrize("user", COMPONENTS, ids=_named)
def test_no_component_may_do_what_harms_others(control_plane: ControlPlane, user: User) -> None:
    api = control_plane.api_of(user)
    allowed = [asked for asked in NO_COMPONENT_MAY for place in ("default", "kube-system") if may(api, *asked, namespace=place)]
    assert allowed == []


def test_service_may_change_nothing_but_write_events_and_tables_of_groups(control_plane: ControlPlane) -> None:
    api = control_plane.api_of(users.SERVICE)
    assert [asked for asked in SERVICE_MAY_NOT if may(api, *asked, namespace="kube-system")] == []
    assert may(api, "create", "", "events", namespace="kube-system")
    assert may(api, "update", "", "configmaps", namespace="kube-system")


def test_service_may_delete_what_it_remembers_of_cards_and_no_other_config_map(control_plane: ControlPlane) -> None:
    api = control_plane.api_of(users.SERVICE)
    names = [shard_name(index) for index in range(SHARDS_MAX)]
    assert [name for name in names if not may(api, "delete", "", "configmaps", "default", name)] == []
    assert not may(api, "delete", "", "configmaps", "default", shard_name(SHARDS_MAX))
    assert not may(api, "delete", "", "configmaps", "default", "kube-root-ca.crt")
    assert not may(api, "delete", "", "configmaps", "kube-system", names[0])


@pytest.mark.parametrize("user", [users.SCHEDULER, users.GPU_SCHEDULER], ids=_named)
def test_scheduler_may_write_no_config_maps(control_plane: ControlPlane, user: User) -> None:
    api = control_plane.api_of(user)
    assert [verb for verb in ("create", "update") if may(api, verb, "", "configmaps", namespace="kube-system")] == []


@pytest.mark.parametrize("verb", ["get", "update", "watch"])
def test_only_the_leases_that_name_the_leader_are_open(control_plane: ControlPlane, verb: str) -> None:
    for user in (users.SERVICE, users.GPU_SCHEDULER):
        api = control_plane.api_of(user)
        assert not may(api, verb, "coordination.k8s.io", "leases", "kube-system", name="kube-controller-manager")
        assert not may(api, verb, "coordination.k8s.io", "leases", "kube-node-lease", name="any-node")


@pytest.fixture(scope="module")
def target(control_plane: ControlPlane) -> Iterator[Workspace]:
    """A workspace with a pod that waits: what the components try their hands on."""
    with Workspace(control_plane.api, "rights") as workspace:
        workspace.add_nodes("dgx-1v")
        workspace.add_pod("waits", workspace.pod_spec(1, scheduler="nobody"))
        yield workspace


def _annotations(key: str) -> Object:
    return {"metadata": {"annotations": {key: "{}"}}}


def _bind(api: Api, own: Workspace) -> Object:
    target = {"apiVersion": "v1", "kind": "Node", "name": own._nodes[0]}
    return api.create(f"{own.pods}/waits/binding", {"metadata": {"name": "waits"}, "target": target})


def _make_admin(api: Api, user: User) -> Object:
    everything = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user.name}
    return api.create(f"{RBAC}/clusterrolebindings", {"metadata": {"name": "own"}, "roleRef": everything, "subjects": [subject]})


ALL_TRY: Final[Mapping[str, Callable[[Api, User, Workspace], object]]] = {
    "create a pod": lambda api, _, own: api.create(own.pods, {"metadata": {"name": "new"}, "spec": own.pod_spec()}),
    "annotate a pod": lambda api, _, own: api.patch(f"{own.pods}/waits", _annotations(GPUS)),
    "annotate a node": lambda api, _, own: api.patch(f"{NODES}/{own._nodes[0]}", _annotations(TOPOLOGY)),
    "delete a node": lambda api, _, own: api.delete(f"{NODES}/{own._nodes[0]}"),
    "read secrets": lambda api, _, own: api.get("/api/v1/secrets"),
    "become admin": lambda api, user, _: _make_admin(api, user),
}
SERVICE_TRIES: Final[Mapping[str, Callable[[Api, User, Workspace], object]]] = {
    "delete a pod": lambda api, _, own: api.delete(f"{own.pods}/waits"),
    "delete all pods": lambda api, _, own: api.delete(own.pods),
    "bind a pod": lambda api, _, own: _bind(api, own),
    "fail a pod": lambda api, _, own: api.patch_status(f"{own.pods}/waits", {"phase": "Failed"}),
}
TRIES = [pytest.param(user, what, id=f"{_named(user)}: {what}") for user in COMPONENTS for what in ALL_TRY]
TRIES += [pytest.param(users.SERVICE, what, id=f"pyscheduler: {what}") for what in SERVICE_TRIES]


@pytest.mark.parametrize(("user", "what"), TRIES)
def test_component_that_tries_is_refused(control_plane: ControlPlane, target: Workspace, user: User, what: str) -> None:
    before = target.pod("waits")
    with pytest.raises(ApiError) as refusal:
        {**ALL_TRY, **SERVICE_TRIES}[what](control_plane.api_of(user), user, target)
    assert refusal.value.status == 403
    assert target.pod("waits") == before
