"""What others say of the cards of each node now: on the Node, and in ResourceSlices where these are served."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any

from pyscheduler.adapters.api import ApiServer
from pyscheduler.core.capacity.opinions import SAYS_NOTHING, NodeOpinion
from pyscheduler.errors import KubernetesError
from pyscheduler.readers.cards.slice_taints import SliceTaints, opinions_by_node, slice_taints

__all__ = ["NodeOpinions", "SliceSink", "slices_path"]


class NodeOpinions:
    """The latest opinion of each node that says something. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_nodes: dict[str, NodeOpinion] = {}
        self._of_slices: Mapping[str, NodeOpinion] = {}

    def take(self, node: str, opinion: NodeOpinion) -> None:
        """Take what a Node says now."""
        with self._lock:
            if opinion == SAYS_NOTHING:
                self._of_nodes.pop(node, None)
            else:
                self._of_nodes[node] = opinion

    def forget_others(self, listed: Collection[str]) -> None:
        """Drop what all nodes but these have said."""
        with self._lock:
            self._of_nodes = {node: opinion for node, opinion in self._of_nodes.items() if node in listed}

    def take_slices(self, said: Mapping[str, NodeOpinion]) -> None:
        """Take what all ResourceSlices say now."""
        with self._lock:
            self._of_slices = said

    def current(self) -> Mapping[str, NodeOpinion]:
        """Return what is said of which node; of most nothing is."""
        with self._lock:
            names = self._of_nodes.keys() | self._of_slices.keys()
            return {
                name: self._of_nodes.get(name, SAYS_NOTHING).joined(self._of_slices.get(name, SAYS_NOTHING)) for name in names
            }


class SliceSink:
    """The taints of all ResourceSlices."""

    def __init__(self, opinions: NodeOpinions) -> None:
        self._opinions = opinions
        self._slices: dict[str, SliceTaints] = {}

    def replace(self, items: list[SliceTaints]) -> None:
        """Take a full list."""
        self._slices = {each.name: each for each in items}
        self._tell()

    def changed(self, raw: dict[str, Any]) -> None:
        """Take one slice."""
        said = slice_taints(raw)
        before = self._slices.get(said.name)
        self._slices[said.name] = said
        if said != before:
            self._tell()

    def gone(self, raw: dict[str, Any]) -> None:
        """Take a deleted slice."""
        if self._slices.pop(raw["metadata"]["name"], None):
            self._tell()

    def _tell(self) -> None:
        self._opinions.take_slices(opinions_by_node(self._slices.values()))


def slices_path(api: ApiServer) -> str | None:
    """Return where ResourceSlices are listed, in the version that the API server prefers; None if it has none."""
    version = "v1"
    try:
        version = api.get("/apis/resource.k8s.io")["preferredVersion"]["version"]
    except KubernetesError as cause:
        # Where it does not answer, the list of them will say so.
        if cause.status is not None:
            return None
    except (KeyError, TypeError):
        return None
    return f"/apis/resource.k8s.io/{version}/resourceslices"
