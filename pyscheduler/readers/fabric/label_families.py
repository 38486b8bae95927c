"""Node labels that say where in a fabric a node is. A family is the labels that one writer sets together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["CLIQUE", "FAMILIES", "FAMILY_OF", "KEYS", "Family", "Level", "is_known"]

# Set by NVIDIA's GPU feature discovery on multi-node NVLink machines: "<clusterUuid>.<cliqueId>".
CLIQUE: Final = "nvidia.com/gpu.clique"

_TIER: Final = re.compile(r"\d{1,2}", re.ASCII)
# What `_TIER` matches.
_TIERS: Final = (*(str(n) for n in range(100)), *(f"0{n}" for n in range(10)))


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a family: its name and the label keys it goes by, preferred first."""

    name: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """Labels of one writer.

    Attributes
    ----------
    levels
        Nearest first; for a numbered family those beyond its numbers.
    tiers
        Prefix of the labels of a numbered family, empty if it has none.
    tier
        What the names of its levels begin with.
    first
        Lowest number; a lower one is no level of the fabric.
    outermost_first
        The lowest number is the farthest level.
    domain, sub_domain
        Label keys of the NVLink domain, and of a part of it, preferred first.
    generation
        Of families with the same generation, above 0, a node follows one alone: the first.
    """

    name: str
    levels: tuple[Level, ...] = ()
    tiers: str = ""
    tier: str = "tier-"
    first: int = 0
    outermost_first: bool = False
    domain: tuple[str, ...] = ()
    sub_domain: str = ""
    generation: int = 0

    def levels_of(self, nodes: Iterable[Iterable[str]]) -> tuple[Level, ...]:
        """Return the levels for which some node has a label, nearest first; a gap between two stays a level.

        Of each node its label keys are given.
        """
        present = {key for keys in nodes for key in keys}
        numbers = [int(number) for key in present if (number := self._tier(key)) is not None]
        count = [n for n in numbers if n >= self.first]
        span = range(self.first, max(count) + 1) if count else range(0)
        tiers = [Level(f"{self.tier}{n}", (f"{self.tiers}{n}",)) for n in span]
        there = [i for i, level in enumerate(self.levels) if not present.isdisjoint(level.keys)]
        fixed = self.levels[there[0] : there[-1] + 1] if there else ()
        return (*(reversed(tiers) if self.outermost_first else tiers), *fixed)

    def all_keys(self) -> Iterator[str]:
        """Yield all label keys of this family."""
        yield from self.domain
        yield from (key for level in self.levels for key in level.keys)
        if self.sub_domain:
            yield self.sub_domain
        if self.tiers:
            yield from (self.tiers + number for number in _TIERS)

    def _tier(self, key: str) -> str | None:
        if not self.tiers or not key.startswith(self.tiers):
            return None
        number = key[len(self.tiers) :]
        return number if _TIER.fullmatch(number) else None


def _family(name: str, prefix: str, *levels: tuple[str, str], domain: tuple[str, ...] = ()) -> Family:
    return Family(name, tuple(Level(level, (prefix + key,)) for level, key in levels), domain=domain)


_OLD: Final = "network.topology.nvidia.com/"

# In the order of preference: Topograph reads the fabric itself and its newest labels win; then what a cloud says.
# Sources: Topograph docs/reference/node-labels.md (both generations), AWS EKS "network-node-layer" (layer 1 is the
# outermost), GKE "gce-topology", OKE "Using network locality" (rdma.*) and node labels (host.*), CoreWeave, Crusoe
# and Nebius node labels (Nebius: tier 0 is the NVLink rack), Kueue's example of a topology.
FAMILIES: Final = (
    Family(
        "topograph",
        tiers="fabric.topograph.run/tier-",
        domain=("accelerator.topograph.run/domain",),
        sub_domain="accelerator.topograph.run/sub-domain",
        generation=1,
    ),
    Family(
        "topograph-v0",
        (
            Level("leaf", (f"{_OLD}leaf", f"{_OLD}block")),
            Level("spine", (f"{_OLD}spine",)),
            Level("core", (f"{_OLD}core", f"{_OLD}datacenter")),
        ),
        domain=(f"{_OLD}accelerator",),
        generation=1,
    ),
    Family("aws", tiers="topology.k8s.aws/network-node-layer-", tier="layer-", first=1, outermost_first=True),
    _family("gcp", "cloud.google.com/gce-topology-", ("host", "host"), ("subblock", "subblock"), ("block", "block")),
    _family("gke", "topology.gke.io/", ("host", "host"), ("rack", "rack"), ("cluster", "cluster")),
    _family(
        "oci-rdma",
        "oci.oraclecloud.com/rdma.",
        ("local-block", "local_block_id"),
        ("network-block", "network_block_id"),
        ("hpc-island", "hpc_island_id"),
    ),
    _family(
        "oci-host",
        "oci.oraclecloud.com/host.",
        ("rack", "rack_id"),
        ("network-block", "network_block_id"),
        ("hpc-island", "hpc_island_id"),
    ),
    _family(
        "coreweave",
        "backend.coreweave.cloud/",
        ("leafgroup", "leafgroup"),
        ("superpod", "superpod"),
        ("fabric", "fabric"),
        domain=("ds.coreweave.com/nvlink.domain",),
    ),
    _family("kueue", "cloud.provider.com/topology-", ("rack", "rack"), ("block", "block")),
    _family("crusoe", "crusoe.ai/", ("pod", "pod.id"), ("partition", "ib.partition.id")),
    Family(
        "nebius",
        (Level("gpu-cluster", ("topology.nebius.com/gpu-cluster-id",)),),
        tiers="topology.nebius.com/tier-",
        first=1,
        domain=("topology.nebius.com/nvl-instance-group-id", "topology.nebius.com/tier-0"),
    ),
)


FAMILY_OF: Final[Mapping[str, Family]] = {key: family for family in FAMILIES for key in family.all_keys()}
# All label keys that say where in a fabric a node is.
KEYS: Final = frozenset((*FAMILY_OF, CLIQUE))


def is_known(key: str) -> bool:
    """Tell whether a label says where in a fabric a node is."""
    return key in KEYS
