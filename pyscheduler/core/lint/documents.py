"""Checks over the documents of all nodes: which are missing or assumed, and UUIDs that are told twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyscheduler.core.explain import plural
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.lint.words import some
from pyscheduler.core.record import NodeRecord

__all__ = ["document_assumed", "document_missing", "uuid_duplicated"]

_GIVE = "write the annotation with `pyscheduler topology merge`, or name the machine with the label pyscheduler.io/preset"


def document_missing(nodes: Sequence[NodeRecord]) -> Iterator[Finding]:
    """Find GPU nodes of whose GPUs nothing is known but their number."""
    lacking = [node.name for node in nodes if node.document is None]
    if lacking:
        message = f"{plural(len(lacking), 'GPU node')} without a usable document, placed by count alone: {some(lacking)}"
        yield Finding("document-missing", message, _GIVE, severity=Severity.NOTE)


def document_assumed(nodes: Sequence[NodeRecord]) -> Iterator[Finding]:
    """Find nodes whose links are those of a preset."""
    assumed: dict[str, list[str]] = {}
    for node in nodes:
        if node.preset:
            assumed.setdefault(node.preset, []).append(node.name)
    for preset, names in assumed.items():
        message = f"{plural(len(names), 'node')} taken for a {preset}, not looked at: {some(names)}"
        yield Finding("document-assumed", message, _GIVE, severity=Severity.NOTE)


def uuid_duplicated(nodes: Sequence[NodeRecord]) -> Iterator[Finding]:
    """Find GPU UUIDs that stand in the documents of several nodes, or twice in one."""
    holders: dict[str, list[str]] = {}
    for node in nodes:
        for gpu in node.document.gpus if node.document else ():
            if gpu.uuid:
                holders.setdefault(gpu.uuid, []).append(node.name)
    shared: dict[tuple[str, ...], list[str]] = {}
    for uuid, names in holders.items():
        if len(names) > 1:
            shared.setdefault(tuple(dict.fromkeys(names)), []).append(uuid)
    for among, uuids in shared.items():
        yield _duplicated(uuids, among)


def _duplicated(uuids: Sequence[str], names: Sequence[str]) -> Finding:
    which = f"{plural(len(uuids), 'GPU UUID')}, {some(uuids)},"
    if len(names) == 1:
        message = f"{which} of several GPUs of its document"
        return Finding("uuid-duplicated", message, "read its GPUs again and write the annotation anew", names[0], Severity.ERROR)
    message = f"{which} in the documents of {plural(len(names), 'node')}: {some(names)}"
    remedy = "a document was copied from one node to another: write that of each node anew, from the node itself"
    return Finding("uuid-duplicated", message, remedy, severity=Severity.ERROR)
