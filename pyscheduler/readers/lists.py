"""Pages of Kubernetes lists. A page of 500 objects takes some 10 ms to parse, so a worker process does it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyscheduler.core.model import NodeFacts, PodFacts
from pyscheduler.readers.objects import ObjectReader

__all__ = ["Page", "node_page", "pod_page"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """`token` continues the list and is empty on its last page; `version` is the list's resource version."""

    items: list[T]
    token: str
    version: str


def pod_page(reader: ObjectReader, text: bytes) -> Page[PodFacts]:
    """Return the pods of a page that ask for GPUs."""
    raw = json.loads(text)
    pods = (reader.pod(item) for item in raw["items"])
    return _page(raw, [pod for pod in pods if pod is not None])


def node_page(reader: ObjectReader, text: bytes) -> Page[tuple[NodeFacts, str | None]]:
    """Return the nodes of a page, each with the text of its topology annotation."""
    raw = json.loads(text)
    return _page(raw, [reader.node(item) for item in raw["items"]])


def _page(raw: dict[str, Any], items: list[T]) -> Page[T]:
    meta = raw["metadata"]
    return Page(items, meta.get("continue") or "", meta["resourceVersion"])
