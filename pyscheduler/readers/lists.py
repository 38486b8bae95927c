"""Pages of Kubernetes lists. A page of 500 objects takes some 10 ms to parse, so a worker process does it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyscheduler.core.model import NodeFacts, PodFacts
from pyscheduler.readers.objects import ObjectReader

__all__ = ["Page", "node_page", "pod_page"]

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


def pod_page(reader: ObjectReader, text: bytes) -> Page[PodFacts]:
    """Return the pods of a page that ask for GPUs."""
    return _page(json.loads(text), reader.pod)


def node_page(reader: ObjectReader, text: bytes) -> Page[tuple[NodeFacts, str | None]]:
    """Return the nodes of a page, each with the text of its topology annotation."""
    return _page(json.loads(text), reader.node)


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
