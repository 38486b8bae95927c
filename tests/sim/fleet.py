"""A simulated fleet: nodes and cards with their true speeds, what their exporters are like, and the faults put into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.sim.faults import KINDS, Fault, drawn
from tests.sim.models import A100, H100, MI300X, V100, Model
from tests.sim.physics import Hardware

__all__ = ["DEFAULT_POOLS", "Card", "Fleet", "FleetPlan", "Generation", "Node", "Pool", "Profiler", "Restart", "fleet"]

CARDS_PER_NODE: Final = 8


class Generation(StrEnum):
    """Whose names and units an exporter uses."""

    OLD = "dcgm-old"  # DCGM exporter up to 4.8: MHz, %, MiB, ns; all event series are there from the beginning
    NEW = "dcgm-new"  # from 4.9: Hz, shares, bytes, seconds; event series appear with the first event
    AMD = "amd"


class Profiler(StrEnum):
    ON = "on"
    DEAD = "dead"  # from a moment on it reports 0 whatever the card does
    ABSENT = "absent"  # the exporter may not read it


@dataclass(frozen=True)
class Pool:
    """Nodes of one model. Every `low_limit_every`-th has a power limit of `low_limit` of the usual one (0: none)."""

    model: Model
    nodes: int
    exporters: tuple[Generation, ...] = (Generation.OLD, Generation.NEW)
    low_limit_every: int = 0
    low_limit: float = 0.85
    mig_nodes: int = 0


@dataclass(frozen=True)
class Restart:
    """The exporter is away for a while. `driver`: the driver was loaded anew, and all counters begin at 0."""

    at_s: float
    away_s: float
    driver: bool


@dataclass(frozen=True)
class Node:
    """A node of 8 cards, and its exporter. `phase_s`: where in its interval of 30 s the exporter samples."""

    name: str
    exporter: Generation
    phase_s: float = 0.0
    profiler: Profiler = Profiler.ON
    profiler_dies_s: float = 0.0
    restarts: tuple[Restart, ...] = ()


@dataclass(frozen=True)
class Card:
    """A card. `speed` is its own, 1 on average over its model; `instances` are its MIG instances, none for a whole card."""

    node: int
    place: int
    uuid: str
    serial: str
    pci: str
    model: Model
    limit_w: float
    speed: float
    instances: tuple[str, ...] = ()


DEFAULT_POOLS: Final = (
    Pool(H100, 24, low_limit_every=4),
    Pool(A100, 20, mig_nodes=1),
    Pool(MI300X, 12, (Generation.AMD,)),
    Pool(V100, 8, (Generation.OLD,)),
)


@dataclass(frozen=True)
class FleetPlan:
    """What to draw.

    Attributes
    ----------
    sigma
        Relative standard deviation of the cards' own speeds.
    fault_share
        Share of the cards that get a fault, of the `kinds` in turn.
    bad_nodes
        Share of the nodes whose profiler is dead or absent.
    """

    seed: int = 1
    sigma: float = 0.05
    hours: float = 24.0
    pools: tuple[Pool, ...] = DEFAULT_POOLS
    fault_share: float = 0.1
    kinds: tuple[str, ...] = tuple(KINDS)
    bad_nodes: float = 0.08
    restarts_per_node: float = 0.3


@dataclass(frozen=True)
class Fleet:
    """What was drawn."""

    plan: FleetPlan
    nodes: Sequence[Node]
    cards: Sequence[Card]
    faults: Sequence[Fault] = field(default_factory=list)

    @cached_property
    def node_of(self) -> NDArray[np.intp]:
        return np.array([card.node for card in self.cards], np.intp)

    @cached_property
    def speeds(self) -> NDArray[np.float64]:
        return np.array([card.speed for card in self.cards])

    @cached_property
    def peers_of(self) -> NDArray[np.intp]:
        """The number of each card's group of peers: same model, same power limit."""
        keys = [(card.model.name, card.limit_w) for card in self.cards]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return np.array([numbers[key] for key in keys], np.intp)

    @cached_property
    def hardware(self) -> Hardware:
        models = [card.model for card in self.cards]
        names = ("max_clock_mhz", "idle_clock_mhz", "clock_step_mhz", "memory_clock_mhz", "idle_memory_clock_mhz")
        others = ("idle_w", "memory_mib", "slowdown_c", "pcie_gen")
        return Hardware(
            **{name: _column(getattr(model, name) for model in models) for name in (*names, *others)},
            limit_w=_column(card.limit_w for card in self.cards),
            limit_share=_column(card.limit_w / card.model.limit_w for card in self.cards),
            # The air reaches the last places of a node, and the top of a rack, warmer.
            place_c=_column(0.9 * card.place + 0.5 * (card.node % 6) for card in self.cards),
        )


def _column(values) -> NDArray[np.float64]:
    return np.array(list(values), float)[:, None]


def fleet(plan: FleetPlan) -> Fleet:
    """Draw the fleet of a plan. Equal plans give equal fleets."""
    rng = np.random.default_rng([plan.seed, 1])
    nodes: list[Node] = []
    cards: list[Card] = []
    for pool in plan.pools:
        for number in range(pool.nodes):
            nodes.append(_node(f"{_slug(pool.model)}-{number}", pool, number, plan, rng))
            is_low = pool.low_limit_every and number % pool.low_limit_every == pool.low_limit_every - 1
            limit = pool.model.limit_w * (pool.low_limit if is_low else 1)
            instances = ("1", "2") if number < pool.mig_nodes else ()
            speeds = rng.normal(1, plan.sigma, CARDS_PER_NODE)
            cards += [_card(len(nodes) - 1, place, pool.model, limit, speeds[place], instances, rng) for place in range(8)]
    return Fleet(plan, nodes, cards, _faults(plan, cards, rng))


def _slug(model: Model) -> str:
    return next(word for word in model.name.replace("_", " ").replace("-", " ").split() if any(map(str.isdigit, word))).lower()


def _node(name: str, pool: Pool, number: int, plan: FleetPlan, rng: np.random.Generator) -> Node:
    seconds = plan.hours * 3600
    state = str(rng.choice(("dead", "absent"))) if rng.random() < plan.bad_nodes else "on"
    restarts = [
        Restart(float(at), float(rng.uniform(30, 180)), bool(rng.random() < 0.5))
        for at in np.sort(rng.uniform(0, seconds, rng.poisson(plan.restarts_per_node)))
    ]
    dies = float(rng.uniform(0, seconds))
    phase = float(rng.uniform(0, 30))
    return Node(name, pool.exporters[number % len(pool.exporters)], phase, Profiler(state), dies, tuple(restarts))


def _card(
    node: int, place: int, model: Model, limit: float, speed: float, instances: tuple[str, ...], rng: np.random.Generator
) -> Card:
    text = rng.bytes(16).hex()
    uuid = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    return Card(
        node=node,
        place=place,
        uuid=f"GPU-{uuid}",
        serial=f"PCB{text[:12].upper()}",
        pci=f"00000000:{(place + 1) * 0x1A:02X}:00.0",
        model=model,
        limit_w=limit,
        speed=float(speed),
        instances=instances,
    )


def _faults(plan: FleetPlan, cards: Sequence[Card], rng: np.random.Generator) -> list[Fault]:
    """Spread the faults over the groups of peers in proportion, never on cards that are split."""
    names = list(rng.permutation(np.array(plan.kinds))) if plan.kinds else []
    groups: dict[tuple[str, float], list[int]] = {}
    for number, card in enumerate(cards):
        if not card.instances:
            groups.setdefault((card.model.name, card.limit_w), []).append(number)
    hit: list[int] = []
    for members in groups.values():
        hit += rng.choice(members, round(plan.fault_share * len(members)), replace=False).tolist()
    return drawn(hit, [str(name) for name in names], plan.hours, rng) if names else []
