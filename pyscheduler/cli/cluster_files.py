"""Files of Kubernetes objects to what describes a cluster's machines and fabric."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pyscheduler.cli.input_text import YAML_LIMIT_CHARS, InputError, as_json, decode, read_bytes
from pyscheduler.readers.class_document import LABEL
from pyscheduler.readers.cluster_objects import ClusterObjects
from pyscheduler.readers.reading import RefusedError
from pyscheduler.readers.text.json_text import json_or_none

__all__ = ["cluster_of", "objects_of", "sort_in"]

# A list of documents of lists is as deep as kubectl goes.
_MAX_DEPTH: Final = 4
# Nodes with documents are some 20 KiB each.
_LIMIT_BYTES: Final = 512 * 1024 * 1024
_HINT: Final = "pass what `kubectl get nodes -o json` prints"


def cluster_of(files: Iterable[str]) -> ClusterObjects:
    """Return the nodes, classes of machines (ConfigMaps), HyperNodes and Topologies of the files.

    Raises
    ------
    InputError
        If a file cannot be read or holds none of them, or if there is no node.

    """
    objects = ClusterObjects()
    for file in files:
        found = [sort_in(raw, objects) for raw in objects_of(_loaded(file))]
        if not any(found):
            raise InputError(f"{file}: holds no Node objects: {_HINT}")
    if not objects.nodes:
        raise InputError(f"no Node objects in {', '.join(files)}: {_HINT}")
    return objects


def sort_in(raw: Any, objects: ClusterObjects) -> bool:
    """Put the object where it belongs. Return whether it is of any use."""
    kind = str(raw.get("kind")) if isinstance(raw, dict) else "Node"
    places = {"Node": objects.nodes, "ConfigMap": objects.classes, "HyperNode": objects.fabric, "Topology": objects.fabric}
    useful = kind in places and (kind != "ConfigMap" or _is_class(raw))
    if useful:
        places[kind].append(raw)
    return useful


def _is_class(raw: Mapping[str, Any]) -> bool:
    """Tell whether a ConfigMap holds a class of machines; a cluster has many others."""
    meta = raw.get("metadata")
    labels = meta.get("labels") if isinstance(meta, Mapping) else None
    return isinstance(labels, Mapping) and LABEL in labels


def _loaded(file: str) -> Any:
    text = decode(read_bytes(file, _LIMIT_BYTES))
    raw = json_or_none(text)
    if raw is not None:
        return raw
    try:
        converted = as_json(text)
    except RefusedError as refusal:
        raise InputError(f"{file}: {refusal}") from None
    if converted is None:
        long = f", and YAML is read up to {YAML_LIMIT_CHARS >> 20} MiB" if len(text) > YAML_LIMIT_CHARS else ""
        raise InputError(f"{file}: is neither JSON nor YAML of Node objects{long}: {_HINT}")
    return json.loads(converted)


def objects_of(raw: Any, kind: str = "", depth: int = 0) -> Iterator[Any]:
    """Yield the objects of an object, a list of them, or several documents. `kind` is that of items that do not say theirs."""
    if isinstance(raw, list) and depth < _MAX_DEPTH:
        for item in raw:
            yield from objects_of(item, kind, depth + 1)
    elif isinstance(raw, dict) and isinstance(raw.get("items"), list):
        yield from objects_of(raw["items"], str(raw.get("kind") or "").removesuffix("List"), depth + 1)
    elif isinstance(raw, Mapping):
        yield {**raw, "kind": raw.get("kind") or kind}
    elif kind == "Node":
        # It stands where a node should: told as one that cannot be read.
        yield raw
