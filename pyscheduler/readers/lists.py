"""Pages of Kubernetes lists. A page of 500 objects takes some 10 ms to parse, so a worker process does it."""

from __future__ import annotations

import functools
import gc
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from pyscheduler.core.model import PodFacts
from pyscheduler.core.record import NodeRecord
from pyscheduler.readers.cards.slice_taints import SliceTaints, slice_taints
from pyscheduler.readers.objects import ObjectReader

__all__ = ["Page", "node_page", "pod_page", "raw_page", "slice_page"]

# What the API server writes before the objects of a list.
_HEAD = re.compile(rb'(\{"kind":"[A-Za-z]*","apiVersion":"[a-z0-9]*","metadata":\{[^{}]*\}),"items":\[')
_END = b"]}"

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """`token` continues the list and is empty on its last page; `version` is the list's resource version.

    `unread` says of each object that could not be read which it is and why.
    """

    items: list[T]
    token: str
    version: str
    unread: tuple[str, ...] = ()


def _without_collector(read: Callable[P, T]) -> Callable[P, T]:
    """Let a function run without the cycle collector: what it makes has no cycles, and to search it costs a third of the time."""

    @functools.wraps(read)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        was_on = gc.isenabled()
        gc.disable()
        try:
            return read(*args, **kwargs)
        finally:
            if was_on:
                gc.enable()

    return run


@_without_collector
def pod_page(reader: ObjectReader, text: bytes) -> Page[PodFacts]:
    """Return the pods of a page that ask for GPUs, and the members of groups."""
    words = (*reader.resources, *([f'"{reader.scheduler}"'] if reader.scheduler else ()))
    if not any(word.encode() in text for word in words) and text.rstrip().endswith(_END) and (head := _HEAD.match(text)):
        # Most pages of a large cluster name no GPU resource and not this scheduler; to parse them would be most of the work of reading the list.
        return _page({**json.loads(head[1] + b"}"), "items": []}, reader.pod)
    return _page(json.loads(text), reader.pod)


@_without_collector
def node_page(reader: ObjectReader, text: bytes) -> Page[NodeRecord]:
    """Return the nodes of a page."""
    return _page(json.loads(text), reader.node)


@_without_collector
def slice_page(text: bytes) -> Page[SliceTaints]:
    """Return the taints of the ResourceSlices of a page."""
    return _page(json.loads(text), slice_taints)


def raw_page(text: bytes) -> Page[Mapping[str, Any]]:
    """Return the objects of a page as they are."""
    return _page(json.loads(text), lambda raw: raw)


def _page(raw: dict[str, Any], read: Callable[[Mapping[str, Any]], T | None]) -> Page[T]:
    items: list[T] = []
    unread: list[str] = []
    for each in raw["items"]:
        try:
            item = read(each)
        except Exception as cause:  # noqa: BLE001  one object must not keep the service from all others
            unread.append(f"{each.get('metadata', {}).get('name')}: {type(cause).__name__}: {cause}")
        else:
            items += [] if item is None else [item]
    meta = raw["metadata"]
    return Page(items, meta.get("continue") or "", meta["resourceVersion"], tuple(unread))
