"""Requests to place, from flags or from a file, to jobs.

A request is {gpus} or {pods, gpus_per_pod, one_pod_per_node}, with required_level, preferred_level, max_link,
near_nic, same_numa, same_model. A field that is not known is refused: a limit that is misspelt must never be no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.core.job import Job, Limits
from pyscheduler.core.machine.links import Link, UnknownLinkTypeError
from pyscheduler.readers.reading import RefusedError
from pyscheduler.readers.snapshot_values import name_at, shown, switch, whole

__all__ = ["FIELDS", "job_of", "jobs_of"]

# More GPUs than any cluster has.
COUNT_MAX: Final = 1_000_000

# NICs that a refusal names.
_NICS_MAX: Final = 8

FIELDS: Final = (
    "gpus",
    "pods",
    "gpus_per_pod",
    "one_pod_per_node",
    "required_level",
    "preferred_level",
    "max_link",
    "near_nic",
    "same_numa",
    "same_model",
)

# What a field is called where the request comes from.
Naming = Callable[[str], str]


def jobs_of(raw: Any, levels: Sequence[str], nics: Sequence[str] = ()) -> tuple[Job, ...]:
    """Return the jobs of a list of requests, in order.

    Parameters
    ----------
    raw
        JSON that is already loaded.
    levels
        Names of the cluster's levels, nearest first.
    nics
        Ids and names of its NICs; empty if no node lists any, then any may be named.

    Raises
    ------
    RefusedError
        If one cannot be used; the message names the element and what is allowed.

    """
    if not isinstance(raw, list):
        raise RefusedError(f'{shown(raw)} is no list of requests; write [{{"gpus": 8}}, ...]')
    for index, entry in enumerate(raw):
        if not isinstance(entry, dict):
            raise RefusedError(f'[{index}]: {shown(entry)} is no request; write {{"gpus": 8}}')
    return tuple(job_of(entry, levels, partial("{}.{}".format, f"[{index}]"), nics) for index, entry in enumerate(raw))


def job_of(request: Mapping[str, Any], levels: Sequence[str], named: Naming, nics: Sequence[str] = ()) -> Job:
    """Return the job of one request; raises as `jobs_of`. Fields that are None are left out."""
    known = {field: value for field, value in request.items() if value is not None}
    for field in known:
        if field not in FIELDS:
            raise RefusedError(f"{named(field)}: is not known; known are {', '.join(FIELDS)}")
    pods, gpus = _counts(known, named)
    return Job(
        pods=pods,
        gpus=gpus,
        limits=Limits(
            max_link=_link(known["max_link"], named("max_link")) if "max_link" in known else None,
            near_nic=_nic(known["near_nic"], nics, named("near_nic")) if "near_nic" in known else None,
            same_numa=_switch(known, "same_numa", named),
        ),
        same_model=_switch(known, "same_model", named),
        one_pod_per_node=_switch(known, "one_pod_per_node", named),
        required_level=_level(known, "required_level", levels, named),
        preferred_level=_level(known, "preferred_level", levels, named),
    )


def _counts(known: Mapping[str, Any], named: Naming) -> tuple[int, int]:
    """Return the number of pods, and of GPUs of each."""
    one, gang = "gpus" in known, ("pods" in known, "gpus_per_pod" in known)
    if one == any(gang) or any(gang) != all(gang):
        several = f"{named('pods')} and {named('gpus_per_pod')}"
        raise RefusedError(f"give either {named('gpus')}, for one pod, or both {several}")
    if one:
        return 1, whole(known["gpus"], named("gpus"), 1, COUNT_MAX)
    pods = whole(known["pods"], named("pods"), 1, COUNT_MAX)
    return pods, whole(known["gpus_per_pod"], named("gpus_per_pod"), 1, COUNT_MAX)


def _switch(known: Mapping[str, Any], field: str, named: Naming) -> bool:
    return switch(known.get(field, False), named(field))


def _link(value: Any, at: str) -> Link:
    try:
        return Link.parse(name_at(value, at))
    except UnknownLinkTypeError as cause:
        raise RefusedError(f"{at}: {cause}") from None


def _nic(value: Any, nics: Sequence[str], at: str) -> str:
    name = name_at(value, at)
    if nics and name not in nics:
        some = ", ".join(nics[:_NICS_MAX]) + (f" and {len(nics) - _NICS_MAX} more" if len(nics) > _NICS_MAX else "")
        raise RefusedError(f"{at}: {shown(name)} is no NIC of this cluster; its NICs are {some}")
    return name


def _level(known: Mapping[str, Any], field: str, levels: Sequence[str], named: Naming) -> str | None:
    if field not in known:
        return None
    allowed = (NODE_LEVEL, *levels)
    if (value := known[field]) not in allowed:
        raise RefusedError(f"{named(field)}: {shown(value)} is no level of this cluster; its levels are {', '.join(allowed)}")
    return str(value)
