"""Other ways to place a job, to compare the selector with. Each keeps the faults that the real one has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from pyscheduler.core.baselines.common import Baseline
from pyscheduler.core.baselines.domain import tightest_domain
from pyscheduler.core.baselines.kruskal import kruskal_naive
from pyscheduler.core.baselines.pod_by_pod import at_random, first_fit, least_allocated, most_allocated

__all__ = ["BASELINES", "Baseline", "baseline"]

BASELINES: Final[Mapping[str, Baseline]] = MappingProxyType(
    {
        "kruskal-naive": kruskal_naive,
        "first-fit": first_fit,
        "random": at_random,
        "least-allocated": least_allocated,
        "most-allocated": most_allocated,
        "tightest-domain": tightest_domain,
    }
)


def baseline(name: str, seed: int = 0) -> Baseline:
    """Return one of `BASELINES`; ``random`` draws by the seed."""
    return partial(at_random, seed=seed) if name == "random" else BASELINES[name]
