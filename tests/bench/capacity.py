"""The detector of slow cards against simulated fleets whose true speeds are known: `make bench-capacity`.

For each spread of speeds some days of 24 h with 512 cards: three generations of exporters, jobs and rests, and one card in ten with a
fault. Polls every 30 s go from the raw series through the catalogue to the detector; at the end of each day it is compared with the truth
(`tests.sim.truth`). Then flapping faults, with and without what makes states stable. Everything is in simulated time, so
the tables do not depend on the machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from pyscheduler.core.capacity.config import CapacityConfig, StateConfig
from tests.bench.throughput import machine
from tests.judge import Judged, changes, figures, judged, watch
from tests.sim.day import Day, simulate
from tests.sim.faults import KINDS, FaultKind, flapping
from tests.sim.fleet import Fleet, FleetPlan, Pool, fleet
from tests.sim.loads import LOADS, Job
from tests.sim.models import H100
from tests.sim.truth import Label, Verdict

SIGMAS = (0.03, 0.05, 0.08)
SEEDS = (1, 2, 3)
# Every threshold of the state machine that is there to keep it from following each sample.
UNSTABLE = CapacityConfig(
    window_s=0.0,
    states=StateConfig(
        degrade_samples=1, recover_threshold=0.65, recover_s=0.0, recover_samples=1, probation_s=0.0, relapse_s=0.0
    ),
)
# Fault, its size, minutes on, minutes off.
FLAPPING = (
    (FaultKind.SLOW, 0.2, 60, 60),
    (FaultKind.SLOW, 0.2, 2, 2),
    (FaultKind.BRAKE, 0.15, 30, 30),
    (FaultKind.THERMAL, 0.15, 30, 30),
)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="one day for each")
    parser.add_argument("--sigmas", type=float, nargs="+", default=SIGMAS, help="relative deviation of the cards' speeds")
    parser.add_argument("--misses", action="store_true", help="list the cards that were judged wrongly, and why")
    asked = parser.parse_args()
    began = time.process_time()
    found = {sigma: _days(sigma, asked.seeds) for sigma in asked.sigmas}
    _summary(found)
    _by_fault(found)
    _ranks(found)
    if asked.misses:
        _misses(found)
    _flapping()
    print(f"\n{time.process_time() - began:.0f} s of CPU on {machine()}")


def _days(sigma: float, seeds: Sequence[int]) -> list[Judged]:
    return [card for seed in seeds for card in judged(watch(simulate(fleet(FleetPlan(seed, sigma)))))]


def _summary(found: dict[float, list[Judged]]) -> None:
    print(
        "| spread | slow is | positives | recall | precision | false alarms (negatives) | at any time | grey: kept out | classic |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for sigma, cards in found.items():
        grey = [card for card in cards if card.truth.label is Label.GREY]
        ever = sum(card.ever for card in cards if card.truth.label is Label.NEGATIVE)
        for name, wanted in (("(a) against peers", _is_slow), ("(b) against itself", _is_dropped)):
            ours, classic = figures(cards, wanted), figures(cards, wanted, classic=True)
            print(
                f"| {sigma:.0%} | {name} | {ours.positives} | {ours.recall:.3f} | {ours.precision:.3f}"
                f" | {ours.false} ({ours.negatives}) | {ever} | {sum(card.caught for card in grey)} of {len(grey)}"
                f" | recall {classic.recall:.2f}, precision {classic.precision:.2f} |"
            )


def _is_slow(truth: Verdict) -> bool:
    return truth.is_slow


def _is_dropped(truth: Verdict) -> bool:
    return truth.is_dropped


def _by_fault(found: dict[float, list[Judged]]) -> None:
    """Print by fault who was caught, positives and grey apart, and how long it took."""
    print(
        f"\n| fault | {' | '.join(f'{sigma:.0%}: caught (grey)' for sigma in found)} | busy hours: median, p90 | hours: median, p90 |"
    )
    print(f"|---|{'---|' * (len(found) + 2)}")
    for fault in (*KINDS, ""):
        cells, caught = [], []
        for cards in found.values():
            these = [card for card in cards if card.truth.fault == fault]
            wanted = [card for card in these if card.truth.label is Label.POSITIVE]
            grey = [card for card in these if card.truth.label is Label.GREY]
            cells.append(f"{_of(wanted)} ({_of(grey)})")
            caught += [card for card in wanted if card.caught]
        print(
            f"| {fault or 'none'} | {' | '.join(cells)} | {_spread(c.busy_h for c in caught)} | {_spread(c.wall_h for c in caught)} |"
        )
    ended = [card for cards in found.values() for card in cards if card.truth.fault == "recovering"]
    print(f"\nRecovering: {sum(c.in_time for c in ended)} of {len(ended)} were kept out when the fault ended,"
          f" {sum(c.caught for c in ended)} still at the end of the day.")  # fmt: skip


def _of(cards: Sequence[Judged]) -> str:
    return f"{sum(card.caught for card in cards)} of {len(cards)}"


def _spread(values: Iterable[float]) -> str:
    known = np.array(list(values))
    return f"{np.median(known):.1f}, {np.percentile(known, 90):.1f}" if len(known) else "-"


def _ranks(found: dict[float, list[Judged]]) -> None:
    print()
    for sigma, cards in found.items():
        behind = np.array([card.behind for card in cards if card.truth.fault in ("slow-10", "drop-10")])
        print(
            f"10 % slow at {sigma:.0%}: behind {np.median(behind):.0%} of its peers (median of {len(behind)}), at least {behind.min():.0%}"
        )


def _misses(found: dict[float, list[Judged]]) -> None:
    for sigma, cards in found.items():
        for card in cards:
            truth = card.truth
            if truth.label is not Label.GREY and card.caught != (truth.label is Label.POSITIVE):
                print(
                    f"{sigma:.0%} {'kept out' if card.caught else 'handed out'}: fault {truth.fault or 'none'}, relative speed"
                    f" {truth.relative:.3f}, drop {truth.drop:.3f}, {truth.hours_since:.1f} busy hours since; {card.evidence}"
                )


def _flapping() -> None:
    """Print how often cards change their state whose fault comes and goes all day."""
    print("\n| flapping for 24 h | state changes with stabilization | without | kept out or handed out again: with | without |")
    print("|---|---|---|---|---|")
    for kind, size, on, off in FLAPPING:
        day = _flapping_day(kind, size, on * 60, off * 60)
        cards = [fault.card for fault in day.fleet.faults]
        (stable, moves), (unstable, free_moves) = changes(day, cards, (CapacityConfig(), UNSTABLE))
        print(
            f"| {kind.value} {size:.0%}, {on} min on, {off} min off | {stable} | {unstable} | {moves} | {free_moves} |",
            flush=True,
        )


def _flapping_day(kind: FaultKind, size: float, on_s: float, off_s: float) -> Day:
    """Return a day on which two of 16 cards have the fault, all at the same work."""
    plan = FleetPlan(seed=7, sigma=0.01, pools=(Pool(H100, 2),), fault_share=0, bad_nodes=0, restarts_per_node=0)
    drawn: Fleet = fleet(plan)
    faults = [replace(flapping(card, size, on_s, off_s, plan.hours), kind=kind) for card in (3, 11)]
    job = Job("all-day", LOADS["compute"], np.arange(16), 0, round(plan.hours * 120), 1.0, 1.0)
    return simulate(replace(drawn, faults=faults), [job])


if __name__ == "__main__":
    main()
