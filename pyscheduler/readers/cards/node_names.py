"""By what else than their names nodes are known: addresses, which series may show in the label ``instance``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["node_names"]


def node_names(addresses: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return names and addresses of nodes, to their names, given the addresses of each node.

    An address that two nodes have is of neither: its name is "". The name of a node is never the address of another.
    """
    found: dict[str, str] = {}
    for name, listed in addresses.items():
        for address in listed:
            if found.setdefault(address, name) != name:
                found[address] = ""
    return found | {name: name for name in addresses}
