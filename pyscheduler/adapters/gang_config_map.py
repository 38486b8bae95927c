"""The ConfigMap in which the table of a group stands: how it is written, and what another one of its name says."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from pyscheduler.core.gangs.membership import GangKey
from pyscheduler.core.gangs.table import GangTable, Row

__all__ = ["BYTES_MAX", "adds", "config_map", "is_ours", "name_of"]

Raw = Mapping[str, Any]

# The API server takes values of 1 MiB together (k8s.io/kubernetes pkg/apis/core, MaxSecretSize, also of ConfigMaps).
BYTES_MAX: Final = 1 << 20

_SUFFIX: Final = "-ranks"
_RANKS: Final = "ranks.json"
# A DNS subdomain, as the names of ConfigMaps have to be (k8s.io/apimachinery pkg/util/validation).
_NAME_MAX: Final = 253
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")

_MANAGED: Final = {"app.kubernetes.io/managed-by": "pyscheduler"}
_LEFT_OUT: Final = (
    "The GPUs of each rank are left out of ranks.json: with them the table is larger than the 1 MiB of a ConfigMap. "
    "Each pod's are in its annotation pyscheduler.io/gpus.\n"
)
_WHOLE_CLUSTER: Final = "cluster"
_SPEED: Final = "relative_speed"


def name_of(gang: GangKey) -> str:
    """Return the name of the group's ConfigMap: that of the group and ``-ranks``, made a DNS name where it is none."""
    name = f"{gang.name}{_SUFFIX}"
    if len(name) <= _NAME_MAX and _NAME.fullmatch(name):
        return name
    # Two groups may be alike in what is left of their names.
    digest = hashlib.sha256(gang.name.encode()).hexdigest()[:8]
    readable = re.sub(r"[^a-z0-9]+", "-", gang.name.lower())[: _NAME_MAX - len(digest) - len(_SUFFIX) - 1].strip("-")
    return f"{readable}-{digest}{_SUFFIX}".removeprefix("-")


def config_map(table: GangTable) -> dict[str, Any] | None:
    """Return the ConfigMap, None if it would be larger than the API server takes even without GPUs."""
    data = _data(table)
    if _size(data) > BYTES_MAX:
        data = {**_data(table, with_gpus=False), "left-out": _LEFT_OUT}
    if _size(data) > BYTES_MAX:
        return None
    owner = table.owner
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name_of(table.gang),
            "namespace": table.gang.namespace,
            "labels": _MANAGED,
            "annotations": {"pyscheduler.io/group": table.gang.name},
            "ownerReferences": [{"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}],
        },
        "data": data,
    }


def is_ours(found: Raw) -> bool:
    """Tell whether a ConfigMap is one of ours, and not one that somebody made for himself under such a name."""
    return _MANAGED.items() <= (found["metadata"].get("labels") or {}).items()


def adds(wanted: Raw, found: Raw) -> bool:
    """Tell whether a table says anything that the one which is there does not."""
    return _owners(wanted) != _owners(found) or not _rows(wanted) <= _rows(found)


def _data(table: GangTable, *, with_gpus: bool = True) -> dict[str, str]:
    # One rank a line.
    ranks = ",\n ".join(json.dumps(_said(row, with_gpus=with_gpus), separators=(",", ":")) for row in table.rows)
    return {
        _RANKS: f"[{ranks}]\n",
        "hostfile": "".join(f"{row.host} slots={len(row.gpus)}\n" for row in table.rows),
        "world_size": str(len(table.rows)),
        "level": table.level or _WHOLE_CLUSTER,
    }


def _said(row: Row, *, with_gpus: bool) -> dict[str, object]:
    said: dict[str, object] = {"rank": row.rank, "pod": row.pod, "host": row.host, "node": row.node}
    said |= {"gpus": row.gpus} if with_gpus else {}
    speed = {} if row.relative_speed is None else {_SPEED: row.relative_speed}
    return {**said, "bottleneck": row.bottleneck, **speed}


def _size(data: Mapping[str, str]) -> int:
    return sum(len(value.encode()) for value in data.values())


def _owners(raw: Raw) -> list[str]:
    return [owner["uid"] for owner in raw["metadata"].get("ownerReferences") or ()]


def _rows(raw: Raw) -> frozenset[str]:
    """Return the rows of a table without speeds, which waver; none if somebody has made something else of it."""
    try:
        rows = [{key: row[key] for key in row if key != _SPEED} for row in json.loads(raw["data"][_RANKS])]
        return frozenset(json.dumps(row, sort_keys=True) for row in rows)
    except (KeyError, TypeError, ValueError, RecursionError):
        return frozenset()
