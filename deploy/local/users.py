"""The users of the control plane: one for each component, each with the rights that it needs and no more.

kube-scheduler and kube-controller-manager have the users that Kubernetes ships roles for. The roles of the others are
the manifests in deploy/rbac and deploy/local/rbac. Only `ADMIN`, which the person at the keyboard uses, may do all.
"""

from __future__ import annotations

import csv
import io
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from deploy.local.layout import Layout


@dataclass(frozen=True, slots=True)
class User:
    """A user as the API server's token file names it."""

    name: str
    groups: tuple[str, ...] = ()


ADMIN: Final = User("admin", groups=("system:masters",))
SCHEDULER: Final = User("system:kube-scheduler")
# A scheduler beside the cluster's own, with the rights in deploy/rbac/scheduler.yaml.
GPU_SCHEDULER: Final = User("gpu-topology")
CONTROLLER_MANAGER: Final = User("system:kube-controller-manager")
KWOK: Final = User("kwok")
SERVICE: Final = User("pyscheduler")
SIMULATOR: Final = User("pyscheduler-simulator")
ALL: Final = (ADMIN, SCHEDULER, GPU_SCHEDULER, CONTROLLER_MANAGER, KWOK, SERVICE, SIMULATOR)


def write_credentials(layout: Layout, server: str) -> None:
    """Give every user a new token; write the API server's token file and the kubeconfigs, all with mode 0600.

    Parameters
    ----------
    layout
        Where they are written.
    server
        URL of the API server.

    """
    tokens = {user: secrets.token_urlsafe(32) for user in ALL}
    _write_private(layout.pki / "tokens.csv", _token_file(tokens))
    for user, token in tokens.items():
        _write_private(layout.kubeconfig(user.name), _kubeconfig(user, token, server, layout.pki / "apiserver.crt"))


def _token_file(tokens: Mapping[User, str]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for user, token in tokens.items():
        rows.writerow([token, user.name, user.name, ",".join(user.groups)])
    return text.getvalue()


def _kubeconfig(user: User, token: str, server: str, authority: Path) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": user.name, "user": {"token": token}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": user.name}}],
        "current-context": "local",
    }
    return yaml.safe_dump(document, sort_keys=False)


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
