"""The part ``fabric`` of the configuration file, as YAML gives it, to `FabricConfig`. Every problem is listed with its path."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, get_args

from pyscheduler.readers.fabric.label_families import Level
from pyscheduler.readers.fabric.rules import FabricConfig, PoolConfig, Source

__all__ = ["fabric_config"]

_NEAREST_FIRST: Final = "nearest-first"
# What a single node, and an NVLink domain over nodes, are called among levels.
_TAKEN: Final = ("node", "nvlink-domain")
_ORDERS: Final = (_NEAREST_FIRST, "farthest-first")
# An optional DNS name and a slash, then a name of at most 63 characters (Kubernetes, "Labels and Selectors").
_LABEL_KEY: Final = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def fabric_config(raw: Any) -> tuple[FabricConfig, list[str]]:
    """Return what `raw` says and all that is wrong with it. With problems the configuration is not to be used."""
    reader = _Reader()
    config = reader.fabric({} if raw is None else raw)
    return config, reader.problems


class _Reader:
    """Reads one file. What has a problem counts as not written."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def fabric(self, raw: Any) -> FabricConfig:
        path = "fabric"
        known = self._mapping(path, raw, ("source", "topology", "pools"))
        source: Source = self._choice(f"{path}.source", known.get("source", "labels"), get_args(Source))
        if "topology" in known and source != "kueue":
            self._problem(f"{path}.topology", "has a meaning with source: kueue alone; take it out")
        if "pools" in known and source != "labels":
            self._problem(f"{path}.pools", "has a meaning with source: labels alone; take it out")
        topology = self._text(f"{path}.topology", known.get("topology", "default"))
        written = self._list(f"{path}.pools", known.get("pools", []))
        pools = [self._pool(f"{path}.pools[{i}]", pool) for i, pool in enumerate(written)]
        self._unique(f"{path}.pools", "name", [pool.name for pool in pools])
        for i, pool in enumerate(pools[:-1]):
            if isinstance(written[i], dict) and not written[i].get("selector"):
                self._problem(f"{path}.pools[{i}]", f"has no selector, so the pools after {pool.name!r} get no node; put it last")
        return FabricConfig(source, topology, tuple(pools))

    def _pool(self, path: str, raw: Any) -> PoolConfig:
        known = self._mapping(path, raw, ("name", "selector", "order", "levels", "nvlink_domain"), ("name", "levels"))
        written = self._list(f"{path}.levels", known.get("levels", []))
        levels = [self._level(f"{path}.levels[{i}]", level) for i, level in enumerate(written)]
        self._unique(f"{path}.levels", "name", [level.name for level in levels])
        self._unique(f"{path}.levels", "label", [level.keys[0] for level in levels])
        order = self._choice(f"{path}.order", known.get("order", _NEAREST_FIRST), _ORDERS)
        return PoolConfig(
            name=self._text(f"{path}.name", known["name"]) if "name" in known else "",
            levels=tuple(levels if order == _NEAREST_FIRST else reversed(levels)),
            selector=self._selector(f"{path}.selector", known.get("selector")),
            nvlink_domain=self._label(f"{path}.nvlink_domain", known["nvlink_domain"]) if "nvlink_domain" in known else "",
        )

    def _level(self, path: str, raw: Any) -> Level:
        if not isinstance(raw, dict):
            label = self._label(path, raw)
            return Level(label, (label,))
        known = self._mapping(path, raw, ("name", "label"), ("name", "label"))
        name = self._text(f"{path}.name", known["name"]) if "name" in known else ""
        if name in _TAKEN:
            self._problem(f"{path}.name", f"{name!r} is the name of a level of its own; choose another one")
        return Level(name, (self._label(f"{path}.label", known["label"]) if "label" in known else "",))

    def _selector(self, path: str, raw: Any) -> tuple[tuple[str, str], ...]:
        if raw is None:
            return ()
        if not isinstance(raw, dict):
            self._problem(path, f"{raw!r} must be a mapping of label keys to values")
            return ()
        for key, value in raw.items():
            self._label(path, key)
            if not isinstance(value, str):
                self._problem(f"{path}.{key}", f"{value!r} must be a text; put it in quotes")
        return tuple((str(key), str(value)) for key, value in raw.items())

    def _mapping(self, path: str, raw: Any, known: Collection[str], needed: Collection[str] = ()) -> Mapping[str, Any]:
        if not isinstance(raw, dict):
            self._problem(path, f"{raw!r} must be a mapping with {', '.join(known)}")
            return {}
        for key in raw:
            if key not in known:
                self._problem(f"{path}.{key}", f"unknown; known are {', '.join(known)}")
        for key in needed:
            if key not in raw:
                self._problem(f"{path}.{key}", "is missing")
        return raw

    def _list(self, path: str, raw: Any) -> list[Any]:
        if isinstance(raw, list):
            return raw
        self._problem(path, f"{raw!r} must be a list")
        return []

    def _choice(self, path: str, raw: Any, choices: Sequence[Any]) -> Any:
        if raw in choices:
            return raw
        self._problem(path, f"{raw!r} is none of {', '.join(choices)}")
        return choices[0]

    def _text(self, path: str, raw: Any) -> str:
        if isinstance(raw, str) and raw:
            return raw
        self._problem(path, f"{raw!r} must be a text that is not empty")
        return ""

    def _label(self, path: str, raw: Any) -> str:
        if isinstance(raw, str) and _LABEL_KEY.fullmatch(raw):
            return raw
        self._problem(path, f"{raw!r} must be a label key, such as example.com/leaf")
        return ""

    def _unique(self, path: str, what: str, values: Sequence[str]) -> None:
        for i, value in enumerate(values):
            if value and value in values[:i]:
                self._problem(f"{path}[{i}]", f"{what} {value!r} is that of {path}[{values.index(value)}], too")

    def _problem(self, path: str, what: str) -> None:
        self.problems.append(f"{path}: {what}")
