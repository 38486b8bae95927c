"""Reads a whole cluster once, for lint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pyscheduler.adapters.api import ApiServer, Gone
from pyscheduler.config import Config
from pyscheduler.errors import KubernetesError
from pyscheduler.readers.class_document import LABEL
from pyscheduler.readers.cluster_objects import ClusterObjects

__all__ = ["CLASSES", "NODES", "fabric_path", "namespace", "survey"]

# Small pages: one is held as raw objects, some ten times its size.
PAGE: Final = 100

NODES: Final = "/api/v1/nodes"
# ConfigMaps that hold classes, of one namespace.
CLASSES: Final = "/api/v1/namespaces/{namespace}/configmaps"
# Where the objects are that say where nodes are, by `fabric.source`: API group, version if it cannot be asked, resource.
_FABRIC: Final = {
    "hypernodes": ("topology.volcano.sh", "v1alpha1", "hypernodes"),
    "kueue": ("kueue.x-k8s.io", "v1beta2", "topologies"),
}

_OF_THE_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def namespace(config: Config) -> str:
    """Return where classes are kept: as configured, else the namespace of the pod, else ``default``."""
    if config.namespace:
        return config.namespace
    try:
        return _OF_THE_POD.read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


def fabric_path(api: ApiServer, config: Config) -> str | None:
    """Return where the objects are listed that say where nodes are, in the version that the API server prefers; None: nowhere."""
    if config.fabric.source not in _FABRIC:
        return None
    group, version, resource = _FABRIC[config.fabric.source]
    # Away, or not installed yet: the list of the objects will say so.
    with contextlib.suppress(KubernetesError, KeyError, TypeError):
        version = api.get(f"/apis/{group}")["preferredVersion"]["version"]
    return f"/apis/{group}/{version}/{resource}"


def survey(api: ApiServer, config: Config) -> ClusterObjects:
    """Return all nodes with what describes them.

    Raises
    ------
    KubernetesError
        If the nodes, or the objects that `fabric.source` names, cannot be listed. Without classes, nodes that need one
        show it.

    """
    objects = ClusterObjects(nodes=list(_listed(api, NODES)))
    try:
        objects.classes = list(_listed(api, CLASSES.format(namespace=namespace(config)), {"labelSelector": LABEL}))
    except KubernetesError:
        objects.classes = []
    if path := fabric_path(api, config):
        objects.fabric = list(_listed(api, path))
    return objects


def _listed(api: ApiServer, path: str, query: Mapping[str, str] | None = None) -> Iterator[Mapping[str, Any]]:
    asked = {**(query or {}), "limit": str(PAGE)}
    while True:
        try:
            page = api.get(path, asked)
        except Gone as cause:
            raise KubernetesError(f"the list of {path} ended between two pages ({cause}): try again") from None
        yield from map(_lean, page["items"])
        token = page["metadata"].get("continue")
        if not token:
            return
        asked["continue"] = token


def _lean(raw: Any) -> Any:
    """Drop what lint does not look at, which is most of a Node."""
    with contextlib.suppress(AttributeError, KeyError, TypeError):  # what is no object is told by lint
        raw["metadata"].pop("managedFields", None)
        raw["status"].pop("images", None)
    return raw
