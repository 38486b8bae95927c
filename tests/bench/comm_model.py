"""The communication model against published bandwidths, and against measured step times of placements.

    python -m tests.bench.comm_model FOLDER

FOLDER holds files APPLICATION-CLUSTER.csv of the Sia artifacts (placement, local_bsz, step_time, sync_time; clusters
``aws`` and ``rtx``). A placement such as 122 is three nodes with 1, 2 and 2 GPUs. How pairs and ties are counted:

- The order of the nodes is not part of a layout: 122 and 212 are two measurements of one, and their median counts.
- A pair of layouts is compared at equal batch size per GPU: the median, over the sizes that both have, of the ratio of
  step times. It is a measured tie, and not counted, if that differs by no more than the tolerance.
- Tau is (concordant - discordant) / pairs counted. A predicted tie (within 0.1 %) counts as a pair, and as neither.
- "orders" is what one order of the nodes says of another, over the layouts that were measured in several: what a model
  that cannot tell orders apart can hope for among those.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pyscheduler.core.comm_model import Layout, Links, Network, NodeShare, predict
from pyscheduler.core.machine.links import Link, gbps
from tests.unit.test_comm_model import PLAIN, POINTS, Use, error

TOLERANCES = (0.0, 0.05, 0.10)
# Relative, in logarithms.
PREDICTED_TIE = 1e-3
# Step times by batch size per GPU.
Times = dict[int, float]
Order = Callable[[str, str], float | None]


@dataclass(frozen=True)
class Machines:
    """Nodes of a cluster: GPU model, link between GPUs, GB/s of the node's one NIC, and what a collective gets of it."""

    model: str
    link: str
    nic_gbps: float
    network: Network

    def layout(self, placement: str) -> Layout:
        ring = gbps(Link.parse(self.link), self.model)
        counts = [int(digit) for digit in placement]
        return Layout(
            tuple(NodeShare(count, ring, self.nic_gbps, nic_shared=True, links=Links.PCIE, model=self.model) for count in counts)
        )


# TCP on 50 Gb/s. aws: g4dn.12xlarge (4 T4, 50 Gb/s, 5 Gb/s per flow: EC2's user guide; that two nodes are slower than three
# was seen in bert). rtx: nodes of 8 RTX 2080 Ti, which have no peer access, so through the host; 50 Gb/s is an assumption.
CLUSTERS = {
    "aws": Machines("Tesla T4", "PHB", 6.25, Network(efficiency=0.80, peer_gbps=0.625)),
    "rtx": Machines("GeForce RTX 2080 Ti", "SYS", 6.25, Network(efficiency=0.80)),
}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="measured placements; without it, the published points only")
    parser.add_argument("--megabytes", type=float, default=100.0, help="size of the all-reduce of a step")
    asked = parser.parse_args()
    _print_points()
    if asked.folder is not None:
        for cluster, machines in CLUSTERS.items():
            _print_cluster(asked.folder, cluster, machines, asked.megabytes * 1e6)


def _print_points() -> None:
    print(f"{'published point':24} {'GB':>5} {'measured':>8} {'error':>6} {'plain':>6}  used for, source")
    for point in POINTS:
        errors = f"{100 * error(point):+6.0f} {100 * error(point, PLAIN):+6.0f}"
        print(f"{point.system:24} {point.size / 1e9:5.1f} {point.busbw:8.1f} {errors}  {point.use}, {point.source}")
    across = [point for point in POINTS if "x" in point.system]
    held_out = [100 * abs(error(point)) for point in across if point.use is Use.HELD_OUT]
    plain = [100 * abs(error(point, PLAIN)) for point in across]
    print(f"median error across domains: {statistics.median(held_out):.1f} % of {len(held_out)} held out;", end=" ")
    print(f"without factors (plain), {statistics.median(plain):.1f} % of all {len(plain)}\n")


def _print_cluster(folder: Path, cluster: str, machines: Machines, size: float) -> None:
    titles = [f"tau>{100 * t:.0f}%" for t in TOLERANCES] + [f"equal>{100 * t:.0f}%" for t in TOLERANCES[1:]] + ["orders>5%"]
    print(f"{cluster:12} {'layouts':>7} " + " ".join(f"{title:>14}" for title in titles))
    pooled: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for path in sorted(folder.glob(f"*-{cluster}.csv")):
        orders = _read(path)
        times = _by_layout(orders)
        seconds = {placement: _seconds(machines.layout(placement), size, machines.network) for placement in times}
        counts = [_tau(_pairs(times), _measured(times), _predicted(seconds), t) for t in TOLERANCES]
        counts += [_tau(_pairs(times, equal=True), _measured(times), _predicted(seconds), t) for t in TOLERANCES[1:]]
        counts.append(_orders(orders, TOLERANCES[1]))
        for column, count in enumerate(counts):
            pooled[column].append(count)
        print(f"{path.stem:12} {len(times):7} " + " ".join(_cell(*count) for count in counts))
    print(f"{'overall':12} {'':7} " + " ".join(_cell(*map(sum, zip(*column, strict=True))) for column in pooled.values()) + "\n")


def _cell(agreed: int, pairs: int) -> str:
    return f"{agreed / pairs:5.2f} ({pairs:6})" if pairs else f"{'-':>14}"


def _read(path: Path) -> dict[str, Times]:
    """Return step times by placement, of those with at least two GPUs."""
    times: dict[str, Times] = defaultdict(dict)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if _gpus(row["placement"]) > 1:
                times[row["placement"]][int(float(row["local_bsz"]))] = float(row["step_time"])
    return times


def _gpus(placement: str) -> int:
    return sum(map(int, placement))


def _by_layout(orders: dict[str, Times]) -> dict[str, Times]:
    """Return the median over the orders of the nodes, by counts in falling order."""
    merged: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for placement, times in orders.items():
        for batch, seconds in times.items():
            merged["".join(sorted(placement, reverse=True))][batch].append(seconds)
    return {layout: {batch: statistics.median(all_) for batch, all_ in times.items()} for layout, times in merged.items()}


def _seconds(layout: Layout, size: float, network: Network) -> float:
    prediction = predict(layout, size, network=network)
    assert prediction is not None
    return prediction.seconds


def _measured(times: dict[str, Times]) -> Order:
    @cache
    def ratio(a: str, b: str) -> float | None:
        common = sorted(times[a].keys() & times[b].keys())
        return statistics.median(math.log(times[b][batch] / times[a][batch]) for batch in common) if common else None

    return ratio


def _predicted(seconds: dict[str, float]) -> Order:
    return lambda a, b: math.log(seconds[b] / seconds[a])


def _pairs(times: dict[str, Times], *, equal: bool = False) -> Iterator[tuple[str, str]]:
    """Yield all pairs, or those of equal numbers of GPUs."""
    for a, b in itertools.combinations(sorted(times), 2):
        if not equal or _gpus(a) == _gpus(b):
            yield a, b


def _tau(pairs: Iterator[tuple[str, str]], measured: Order, predicted: Order, tolerance: float) -> tuple[int, int]:
    """Return concordant less discordant pairs, and the number of pairs."""
    agreed = counted = 0
    for a, b in pairs:
        truth, guess = measured(a, b), predicted(a, b)
        if truth is None or guess is None or abs(truth) <= math.log1p(tolerance):
            continue
        counted += 1
        if abs(guess) > PREDICTED_TIE:
            agreed += 1 if truth * guess > 0 else -1
    return agreed, counted


def _orders(orders: dict[str, Times], tolerance: float) -> tuple[int, int]:
    """Return how far one order of the nodes agrees with another, as `_tau`."""
    measured = _measured(orders)
    families: dict[str, list[str]] = defaultdict(list)
    for placement in sorted(orders):
        families["".join(sorted(placement))].append(placement)
    agreed = counted = 0
    for one, other in itertools.combinations([family for family in families.values() if len(family) > 1], 2):
        for a, again_a in itertools.permutations(one, 2):
            for b, again_b in itertools.permutations(other, 2):
                truth, again = measured(a, b), measured(again_a, again_b)
                if truth is not None and again is not None and abs(truth) > math.log1p(tolerance):
                    counted += 1
                    agreed += 1 if truth * again > 0 else -1
    return agreed, counted


if __name__ == "__main__":
    main()
