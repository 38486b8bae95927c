"""Nodes and cards of the cluster against those that have series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pyscheduler.cli.doctor_facts import Answers, Fleet
from pyscheduler.core.explain import plural
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.record import NodeRecord
from pyscheduler.readers.text.excerpt import excerpt
from pyscheduler.readers.text.parts import some

__all__ = ["card_findings"]

# Letters of a UUID that others stand beside: it has 40.
_UUID_MAX: Final = 40
_NO_SERIES: Final = (
    "does the exporter run there (node selector and tolerations of its DaemonSet), does it see the GPUs, and is it a target?"
)
_NO_UUIDS: Final = "publish a node document with the UUIDs of nvidia-smi or amd-smi (`pyscheduler topology merge` writes one)"


def card_findings(answers: Answers, fleet: Fleet) -> Iterator[Finding]:
    """Yield what the one side has and the other has not."""
    cards = answers.cards
    for name in sorted(fleet.gpu_nodes.keys() - cards.keys() if cards else ()):
        yield Finding("node-without-series", "has GPUs and no series of them", _NO_SERIES, name)
    for name in sorted(cards.keys() & fleet.names):
        yield from _of_node(name, cards[name], fleet.gpu_nodes.get(name))
    yield from _on_two_nodes(answers)


def _of_node(name: str, seen: Iterable[str], record: NodeRecord | None) -> Iterator[Finding]:
    if record is None:
        what = "has series of GPUs, and no GPUs that pods could ask for"
        yield Finding("node-without-gpus", what, "does its device plugin run, and does `resources` name what it offers?", name)
        return
    documented = {gpu.uuid for gpu in record.document.gpus if gpu.uuid} if record.document else set()
    # A card without a UUID goes by its index (AMD in virtual machines).
    measured = {uuid for uuid in seen if not uuid.startswith("index:")}
    if not documented:
        if measured:
            what = (
                "its GPUs have no UUIDs in a node document: which of them a bad card is nobody knows, and it cannot be kept out"
            )
            yield Finding("uuids-unknown", what, _NO_UUIDS, name)
        return
    silent, strange = documented - measured, measured - documented
    if silent and {_plain(uuid) for uuid in silent} & {_plain(uuid) for uuid in strange}:
        what = f"its document and its series write the same UUIDs differently ({excerpt(min(silent))!r} and {excerpt(min(strange))!r})"
        yield Finding("uuid-form", what, "write them in the document as the exporter does", name, Severity.ERROR)
        return
    if silent:
        what = f"no series of {plural(len(silent), 'GPU')} of its document: {some(sorted(silent))}"
        yield Finding("card-without-series", what, "does the exporter see it (nvidia-smi -L or amd-smi list there)?", name)
    if strange:
        what = f"series of {plural(len(strange), 'GPU')} that its document does not have: {some(sorted(strange))}"
        yield Finding("card-without-document", what, "was a card replaced? Publish the node document anew", name)


def _plain(uuid: str) -> str:
    """Return the letters and digits that a UUID has in every form."""
    return uuid.casefold().removeprefix("gpu-").removeprefix("0x").replace("-", "")


def _on_two_nodes(answers: Answers) -> Iterator[Finding]:
    nodes: dict[str, list[str]] = {}
    for name, uuids in answers.cards.items():
        for uuid in uuids:
            if not uuid.startswith("index:"):
                nodes.setdefault(uuid, []).append(name)
    twice = [
        f"{excerpt(uuid, _UUID_MAX)} ({', '.join(sorted(names))})" for uuid, names in sorted(nodes.items()) if len(names) > 1
    ]
    if twice:
        what = f"{plural(len(twice), 'UUID')} on more than one node: {some(twice)}"
        yield Finding("uuid-on-several-nodes", what, "was a card moved, or does an exporter name another node than its own?")
