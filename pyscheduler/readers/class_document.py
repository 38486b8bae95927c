"""The class document: what equal machines share, kept once under its hash, so that each node's own document stays small.

Form (JSON, version 1): ``class_hash``, ``models``, ``numa`` (one entry per GPU), ``links`` (link type of each pair, in the
order 0-1, 0-2, ..., 1-2, ...), ``costs`` (likewise, if there are any), ``nic_links`` (a row per GPU), ``nics`` and
``nic_names`` (a column each), ``topology_policy``. It stands in a ConfigMap with the label
``pyscheduler.io/topology-class``, under the key ``class.json``. Its hash is computed anew when it is read: what does
not match it is refused, so nobody can change the class of a node by another content.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyscheduler.core.machine.device_class import DeviceClass, TopologyPolicy, class_hash
from pyscheduler.core.machine.links import Link
from pyscheduler.errors import DocumentError

__all__ = ["KEY", "LABEL", "config_map", "dump", "of_config_map", "parse"]

LABEL: Final = "pyscheduler.io/topology-class"
KEY: Final = "class.json"
VERSION: Final = 1

# Characters of foreign text in a message.
_SHOWN: Final = 120


def parse(text: str) -> tuple[str, DeviceClass]:
    """Return hash and class.

    Raises
    ------
    DocumentError
        If the text is no class document of this version, or its content has another hash.

    """
    try:
        raw = json.loads(text)
        found = _class(raw)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        why = f"{type(cause).__name__}: {str(cause)[:_SHOWN]}"
        raise DocumentError(f"is no class document of version {VERSION} ({why}): write it anew") from cause
    named, its = raw.get("class_hash"), class_hash(found)
    if named != its:
        shown = repr(named[:_SHOWN]) if isinstance(named, str) else "of no text"
        raise DocumentError(f"names the hash {shown} but its content has {its!r}: write it anew")
    return its, found


def dump(device_class: DeviceClass) -> str:
    """Return the class as compact JSON with sorted keys."""
    body = {
        "version": VERSION,
        "kind": "class",
        "class_hash": class_hash(device_class),
        "models": device_class.models,
        "numa": device_class.numa,
        "links": [str(link) for link in device_class.links],
        "nic_links": [[str(link) for link in row] for row in device_class.nic_links],
        "nics": device_class.nics,
        "nic_names": device_class.nic_names,
        "topology_policy": device_class.policy.value,
    }
    if device_class.costs:
        body["costs"] = device_class.costs
    return json.dumps(body, separators=(",", ":"), sort_keys=True)


def config_map(device_class: DeviceClass, namespace: str) -> Mapping[str, Any]:
    """Return the ConfigMap that holds the class."""
    name = class_hash(device_class)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"topology-class-{name}", "namespace": namespace, "labels": {LABEL: name}},
        # Its name is its content: it is never edited.
        "immutable": True,
        "data": {KEY: dump(device_class)},
    }


def of_config_map(raw: Mapping[str, Any]) -> tuple[str, DeviceClass]:
    """Return hash and class of a ConfigMap; raises as `parse`."""
    data = raw.get("data")
    text = data.get(KEY) if isinstance(data, dict) else None
    if not isinstance(text, str):
        raise DocumentError(f"has no key {KEY}: let the agent write it anew")
    return parse(text)


def _class(raw: Any) -> DeviceClass:
    if raw["kind"] != "class" or raw["version"] != VERSION:
        raise ValueError(f"kind {raw['kind']!r}, version {raw['version']!r}")
    return DeviceClass(
        models=tuple(_text_or_none(model) for model in raw["models"]),
        numa=tuple(_number_or_none(numa) for numa in raw["numa"]),
        links=tuple(Link.parse(link) for link in raw["links"]),
        policy=TopologyPolicy(raw.get("topology_policy") or "none"),
        nic_links=tuple(tuple(Link.parse(link) for link in row) for row in raw.get("nic_links") or ()),
        costs=tuple(_number_or_none(cost) for cost in raw.get("costs") or ()),
        nics=tuple(_text(nic) for nic in raw.get("nics") or ()),
        nic_names=tuple(_text_or_none(name) for name in raw.get("nic_names") or ()),
    )


def _text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise TypeError(f"{raw!r} is no text")
    return raw


def _text_or_none(raw: Any) -> str | None:
    if raw is not None and not isinstance(raw, str):
        raise TypeError(f"{raw!r} is no text")
    return raw


def _number_or_none(raw: Any) -> int | None:
    if raw is not None and type(raw) is not int:
        raise TypeError(f"{raw!r} is no number")
    return raw
