"""The addresses of all nodes, as the watch shows them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from pyscheduler.readers.cards.node_names import node_names

__all__ = ["NodeAddresses"]


class NodeAddresses:
    """The latest addresses of each node. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_nodes: dict[str, tuple[str, ...]] = {}
        # Made when it is asked for: nodes seldom change.
        self._names: Mapping[str, str] | None = None

    def take(self, node: str, addresses: tuple[str, ...]) -> None:
        """Take what a Node says now."""
        with self._lock:
            if self._of_nodes.get(node) != addresses:
                self._of_nodes[node] = addresses
                self._names = None

    def forget(self, node: str) -> None:
        """Drop a node that is gone."""
        with self._lock:
            self._of_nodes.pop(node, None)
            self._names = None

    def forget_others(self, listed: Collection[str]) -> None:
        """Drop all nodes but these."""
        with self._lock:
            self._of_nodes = {node: addresses for node, addresses in self._of_nodes.items() if node in listed}
            self._names = None

    def names(self) -> Mapping[str, str]:
        """Return names and addresses of the nodes, to their names."""
        with self._lock:
            if self._names is None:
                self._names = node_names(self._of_nodes)
            return self._names
