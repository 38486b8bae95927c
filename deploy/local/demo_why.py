"""Why a pod got its GPUs: one sentence, from the choices that there were. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Final

from deploy.local.demo_judge import Choice, Free, as_fast
from pyscheduler.core.machine.links import Kind

_FAST: Final = {Kind.NVLINK: "NVLink", Kind.XGMI: "xGMI"}


def why(chosen: Choice, choices: Sequence[Choice], free: Free) -> str:
    """Return why this set on this node.

    Parameters
    ----------
    chosen
        What the pod got.
    choices
        All sets that it could have got.
    free
        GPUs that were free.

    """
    here = [choice for choice in choices if choice.node == chosen.node]
    elsewhere = [choice for choice in choices if choice.node != chosen.node]
    return f"{_of_set(chosen, here, free[chosen.node])}; {_of_node(chosen, elsewhere, free)}"


def ranges(gpus: Iterable[int]) -> str:
    """Return indices in short: ``0-3,6``."""
    runs = groupby(enumerate(sorted(gpus)), key=lambda pair: pair[1] - pair[0])
    spans = [[gpu for _, gpu in run] for _, run in runs]
    return ",".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)


def _of_set(chosen: Choice, here: Sequence[Choice], free: Collection[int]) -> str:
    size = len(chosen.gpus)
    equal = [choice for choice in here if as_fast(choice, chosen.ring_gbps)]
    if size == 1:
        return _of_single(chosen, here)
    if len(here) == 1:
        return f"all {size} free GPUs of the node"
    if sum(choice.level == chosen.level for choice in here) == 1:
        return f"the only {_sets(size, 1)} {_joined(chosen)} among the free {{{ranges(free)}}}"
    if len(equal) == 1:
        second = max(choice.ring_gbps for choice in here if choice is not equal[0])
        return f"the fastest of {_sets(size, len(here))} (the next has {second:.3g} GB/s)"
    share = "all" if len(equal) == len(here) else f"{len(equal)} of"
    return f"{share} {_sets(size, len(here))} have {chosen.ring_gbps:.3g} GB/s{_by_numa(chosen, equal)}"


def _of_single(chosen: Choice, here: Sequence[Choice]) -> str:
    if not chosen.spoils_gbps:
        return "no other GPU of the node is free: no larger job misses it"
    most = max(choice.spoils_gbps for choice in here)
    return f"its best link to a free GPU has {chosen.spoils_gbps:g} GB/s (others up to {most:g}): larger jobs miss it least"


def _sets(size: int, count: int) -> str:
    """Return ``pair``, ``6 pairs``, ``set of 4``, ``35 sets of 4``."""
    noun = "pair" if size == 2 else "set"
    of = "" if size == 2 else f" of {size}"
    return f"{noun}{of}" if count == 1 else f"{count} {noun}s{of}"


def _joined(chosen: Choice) -> str:
    kind = Kind.UNKNOWN if chosen.level is None else chosen.level
    name = _FAST.get(kind, kind.name)
    return f"joined by {name}" if len(chosen.gpus) == 2 else f"with a ring of {name}"


def _by_numa(chosen: Choice, equal: Sequence[Choice]) -> str:
    most = max(choice.numa_nodes for choice in equal)
    fewest = "1 NUMA node" if chosen.numa_nodes == 1 else f"{chosen.numa_nodes} NUMA nodes"
    return f", this one on {fewest}, not {most}" if chosen.numa_nodes < most else ""


def _of_node(chosen: Choice, elsewhere: Sequence[Choice], free: Free) -> str:
    if not elsewhere:
        return "no other node that it may use has room"
    rival = min(elsewhere, key=lambda choice: (*choice.rank, choice.numa_nodes, len(free[choice.node])))
    if len(chosen.gpus) == 1:
        return _than_single(chosen, rival)
    if not as_fast(rival, chosen.ring_gbps):
        return f"next best node {rival.node}: {rival.ring_gbps:.3g} GB/s"
    if rival.numa_nodes > chosen.numa_nodes:
        return f"{rival.node} is as fast but on {rival.numa_nodes} NUMA nodes"
    if len(free[rival.node]) > len(free[chosen.node]):
        return f"{rival.node} is as fast, and emptier: it is spared for larger jobs"
    return f"{rival.node} is as good"


def _than_single(chosen: Choice, rival: Choice) -> str:
    if rival.spoils_gbps > chosen.spoils_gbps:
        return f"on {rival.node} it would cost a link of {rival.spoils_gbps:.3g} GB/s"
    return f"{rival.node} is as good"
