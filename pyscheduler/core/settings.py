"""What a pod asks for in its labels and annotations of the domain pyscheduler.io."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyscheduler.core.job import Capacity, Limits
from pyscheduler.core.machine.links import Link, UnknownLinkTypeError
from pyscheduler.core.model import Code, PodRequest, Verdict
from pyscheduler.core.request import Shape, shape_of

__all__ = ["capacity_of", "limits_of", "shape_of_pod"]

_LIMITS: Final = ("capacity", "max-link", "near-nic", "same-numa")
# What a member of a group may ask for: `readers.gangs` reads these.
_OF_MEMBERS: Final = (
    "group",
    "min-members",
    "max-members",
    "required-level",
    "preferred-level",
    "subgroup",
    "subgroup-level",
    "spread",
    "wait",
    "same-model",
    "one-pod-per-node",
)
# Settings that are not for the scheduler.
_IGNORED: Final = ("simulate",)
_SWITCH: Final = {"true": True, "false": False}
_CAPACITIES: Final = {each.value: each for each in Capacity}


def shape_of_pod(pod: PodRequest) -> Shape | Verdict:
    """Return what the pod needs of a node, or why it can never be placed."""
    settings = pod.settings
    if pod.membership is not None:
        settings = {key: value for key, value in settings.items() if key not in _OF_MEMBERS}
    limits = limits_of(settings)
    return limits if isinstance(limits, Verdict) else shape_of(pod.containers, limits)


def capacity_of(settings: Mapping[str, str]) -> Capacity | Verdict:
    """Return whether the pod takes cards that are left out for their capacity, or why that cannot be told."""
    said = settings.get("capacity", Capacity.REQUIRE)
    capacity = _CAPACITIES.get(said.strip().lower())
    return capacity or _bad(f"pyscheduler.io/capacity is {_shown(said)}: write ignore, prefer or require")


def limits_of(settings: Mapping[str, str]) -> Limits | Verdict:
    """Return the limits on the pod's GPUs, or why they cannot be told.

    Parameters
    ----------
    settings
        Keys without the domain. A key that is not known is refused: a limit that is misspelt must never be no limit.

    """
    if alone := sorted(settings.keys() & {*_OF_MEMBERS}):
        return _bad(f"the pod asks for pyscheduler.io/{alone[0]} and is in no group: set pyscheduler.io/group, or remove it")
    if unknown := sorted(settings.keys() - {*_LIMITS, *_IGNORED}):
        names = " and ".join(f"pyscheduler.io/{key}" for key in unknown)
        return _bad(f"the pod asks for {names}, which this version does not support: remove it")
    same_numa = settings.get("same-numa", "false").strip().lower()
    if same_numa not in _SWITCH:
        return _bad(f"pyscheduler.io/same-numa is {_shown(settings['same-numa'])}: write true or false")
    try:
        max_link = Link.parse(settings["max-link"].strip()) if "max-link" in settings else None
    except UnknownLinkTypeError as cause:
        return _bad(f"pyscheduler.io/max-link: {cause}")
    near_nic = settings.get("near-nic")
    if near_nic is not None and not near_nic.strip():
        return _bad("pyscheduler.io/near-nic is empty: write the id or the name of a NIC, such as mlx5_0")
    capacity = capacity_of(settings)
    if isinstance(capacity, Verdict):
        return capacity
    return Limits(max_link, near_nic.strip() if near_nic else None, _SWITCH[same_numa], capacity=capacity)


def _bad(reason: str) -> Verdict:
    return Verdict(Code.UNRESOLVABLE, reason)


def _shown(value: str) -> str:
    return repr(value if len(value) <= 40 else f"{value[:40]}...")
