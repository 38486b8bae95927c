"""By what it is known where in the fabric a node is: the configuration of the fabric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyscheduler.readers.fabric.label_families import Level

__all__ = ["FabricConfig", "PoolConfig", "Rules", "Source"]

Source = Literal["labels", "hypernodes", "kueue"]


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """Nodes whose levels are known by the same labels.

    Attributes
    ----------
    name
        Its name, for people.
    levels
        Nearest first, each with its label key.
    selector
        The labels that its nodes have; none: every node.
    nvlink_domain
        Label key of the NVLink domain; empty: the well-known ones.
    """

    name: str
    levels: tuple[Level, ...]
    selector: tuple[tuple[str, str], ...] = ()
    nvlink_domain: str = ""

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a node with these labels is of this pool."""
        return all(labels.get(key) == value for key, value in self.selector)


@dataclass(frozen=True, slots=True)
class Rules:
    """How to read the labels of nodes: by the first pool that holds a node; without pools by the known label families."""

    pools: tuple[PoolConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class FabricConfig:
    """The part ``fabric`` of the configuration.

    Attributes
    ----------
    source
        ``labels`` of the nodes, ``hypernodes`` of Volcano, or a Topology of ``kueue``.
    topology
        Name of the Topology object of Kueue.
    pools
        Node pools in the order in which they are tried.
    """

    source: Source = "labels"
    topology: str = "default"
    pools: tuple[PoolConfig, ...] = ()

    @property
    def rules(self) -> Rules:
        """How to read the labels of nodes."""
        return Rules(self.pools)
