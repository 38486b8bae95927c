"""Names of nodes and their labels, out of what lists them: API objects, other JSON, or a ``--show-labels`` table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyscheduler.readers.fabric.label_families import is_known
from pyscheduler.readers.text.json_text import json_or_none, name_of
from pyscheduler.readers.text.terminal_text import plain_lines

__all__ = ["Entry", "entries"]

_NAMES: Final = ("name", "Name", "nodeName", "NodeName", "node", "hostname", "Hostname")
_LABELS: Final = ("labels", "Labels", "topology", "Topology")
_LISTS: Final = ("items", "nodes", "Nodes")
# Topograph's model has lists of nodes and labels, too, by switch: it is no list of nodes.
_MODEL: Final = ("switches", "blocks", "capacity_blocks")
_HOSTNAME: Final = "kubernetes.io/hostname"
# A list of documents of lists of nodes, each under a name, is as deep as any writer goes.
_MAX_DEPTH: Final = 5


@dataclass(frozen=True, slots=True)
class Entry:
    """One node.

    Attributes
    ----------
    name
        None if it has none.
    labels
        A label that is no text is empty here; `odd` names it.
    is_object, is_labels
        It stands there as a Node object; as labels alone.
    """

    name: str | None
    labels: Mapping[str, str]
    is_object: bool = False
    is_labels: bool = False
    odd: tuple[str, ...] = ()


def entries(text: str) -> list[Entry]:
    """Return the nodes of `text` in its order; none if it lists no nodes."""
    raw = json_or_none(text)
    return list(_table(text)) if raw is None else list(_walk(raw, 0))


def _walk(raw: Any, depth: int) -> Iterator[Entry]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(raw, list):
        for item in raw:
            yield from _walk(item, depth + 1)
    elif isinstance(raw, dict):
        yield from _mapping(raw, depth)


def _mapping(raw: Mapping[str, Any], depth: int) -> Iterator[Entry]:
    kind = raw.get("kind")
    if any(key in raw for key in _MODEL):
        return
    inner = [raw[key] for key in _LISTS if isinstance(raw.get(key), list | dict)]
    if isinstance(kind, str) and kind.casefold() == "node":
        meta = raw.get("metadata")
        known = meta if isinstance(meta, dict) else {}
        yield _entry(name_of(known.get("name")), known.get("labels"), is_object=True)
    elif inner:
        for item in inner:
            yield from _walk(item, depth + 1)
    elif kind is None:
        yield from _plain(raw, depth)


def _plain(raw: Mapping[str, Any], depth: int) -> Iterator[Entry]:
    """Yield the nodes of a mapping that is no API object: one node, its labels alone, or nodes by name."""
    if depth > _MAX_DEPTH:
        return
    labels = next((raw[key] for key in _LABELS if isinstance(raw.get(key), dict)), None)
    name = next((found for key in _NAMES if (found := name_of(raw.get(key)))), None)
    if labels is not None:
        yield _entry(name, labels)
    elif any(is_known(key) for key in raw) or _HOSTNAME in raw:
        yield _entry(name, raw, is_labels=True)
    elif isinstance(raw.get("metadata"), dict):
        yield from _plain(raw["metadata"], depth + 1)
    else:
        for key, value in raw.items():
            if isinstance(value, dict):
                yield from (replace(entry, name=entry.name or key) for entry in _plain(value, depth + 1))


def _entry(name: str | None, labels: Any, *, is_object: bool = False, is_labels: bool = False) -> Entry:
    known = labels if isinstance(labels, dict) else {}
    odd = tuple(key for key, value in known.items() if value is not None and not _is_text(value))
    texts = {key: name_of(value) or "" for key, value in known.items()}
    return Entry(name or texts.get(_HOSTNAME) or None, texts, is_object, is_labels, odd)


def _is_text(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _table(text: str) -> Iterator[Entry]:
    """Yield the rows of ``kubectl get nodes --show-labels``: the name is the first word, the labels are ``key=value,...``."""
    if "=" not in text:
        return
    for line in plain_lines(text):
        words = line.split()
        pairs = [pair.partition("=") for word in words[1:] if "=" in word for pair in word.split(",")]
        labels = {key: value for key, _, value in pairs}
        if any("/" in key for key in labels):
            yield Entry(words[0].removeprefix("node/"), labels)
