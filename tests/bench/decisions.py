"""Microseconds per decision in the core, and their ratio to ranking all nodes anew each time: `make bench-decisions`."""

from __future__ import annotations

import argparse
import statistics
import time

from pyscheduler.core.planner import Planner
from tests.builders import ALL, attempt, node, planner, pod

SIZES = (1, 2, 4, 8)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000)
    asked = parser.parse_args()
    kept = _decide(asked.nodes, asked.pods, anew=False)
    anew = _decide(asked.nodes, max(20, asked.pods // 100), anew=True)
    for title, spent in (("kept rankings", kept), ("ranked anew", anew)):
        p99 = sorted(spent)[int(0.99 * len(spent))]
        print(f"{title:14} Filter and Reserve of one pod: median {statistics.median(spent):.0f} us, p99 {p99:.0f} us")
    print(f"ratio {statistics.median(anew) / statistics.median(kept):.1f}")


def _decide(nodes: int, pods: int, *, anew: bool) -> list[float]:
    """Return the microseconds of CPU of each pod's Filter and Reserve."""
    plan = planner(*(node(f"n{i:05}") for i in range(nodes)))
    spent = []
    for number in range(1, pods + 1):
        if anew:
            plan.cluster._rankings.clear()
        begun = time.thread_time()
        _place(plan, number)
        spent.append((time.thread_time() - begun) * 1e6)
    return spent


def _place(plan: Planner, number: int) -> None:
    wanted = pod(f"p{number}", SIZES[number % len(SIZES)])
    answer = plan.filter(attempt(number), wanted, ALL, 0.0)
    if answer.candidates:
        plan.reserve(attempt(number), wanted, answer.candidates[0].node, 0.0)


if __name__ == "__main__":
    main()
