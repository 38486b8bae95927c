"""The views that are merged, in the terms of what they become, and what is to be said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.document import Nic, NodeDocument
from pyscheduler.core.machine.merge_match import gpu_places, nic_keys

__all__ = ["Notes", "View", "views_of"]

_LISTED: Final = 6
# The code of what readers say of such a source.
_HIDDEN: Final = "nvlink-hidden"


@dataclass(frozen=True, slots=True)
class View:
    """One document. `gpus` and `nics` are the merged index of each; of a NIC that is left out None."""

    name: str
    document: NodeDocument
    gpus: tuple[int, ...]
    nics: tuple[int | None, ...] = ()

    @property
    def hides_nvlink(self) -> bool:
        """Whether it shows PCIe paths also where there is NVLink."""
        return any(warning.code == _HIDDEN for warning in self.document.warnings)


@dataclass(slots=True)
class Notes:
    """Findings; those that differ only in the GPU or pair are one."""

    subjects: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def add(self, code: str, subject: str, text: str) -> None:
        """Note `text` of a GPU or pair."""
        self.subjects.setdefault((code, text), []).append(subject)

    def disagree(self, subject: str, what: str, said: Sequence[tuple[object, str]], outcome: str) -> None:
        """Note what each source says of a field, and what counts."""
        sides = ", ".join(f"{value} in {name}" for value, name in said)
        self.add("sources-disagree", subject, f"{what} {sides}; {outcome}")

    def findings(self) -> list[Finding]:
        """Return what was noted, in order."""
        return [Finding(code, f"{_some(subjects)}: {text}") for (code, text), subjects in self.subjects.items()]


def views_of(documents: Sequence[NodeDocument], notes: Notes) -> tuple[list[View], tuple[Nic, ...]]:
    """Return the documents, each with what its GPUs and NICs become, and the merged NICs.

    Raises
    ------
    MergeError
        If they are not of one machine, or if nothing tells which of their GPUs are the same.

    """
    sources = [document.source for document in documents]
    names = [source if sources.count(source) == 1 else f"{source} ({at})" for at, source in enumerate(sources, start=1)]
    named = list(zip(names, documents, strict=True))
    nics: dict[str, Nic] = {}
    views = []
    for (name, document), gpus, keys in zip(named, gpu_places(named), nic_keys(named), strict=True):
        _add_nics(name, document, keys, nics, notes)
        at = {key: place for place, key in enumerate(nics)}
        views.append(View(name, document, gpus, tuple(map(at.get, keys))))
    return views, tuple(nics.values())


def _add_nics(name: str, document: NodeDocument, keys: Sequence[str], nics: dict[str, Nic], notes: Notes) -> None:
    """Add the NICs of a document to `nics`, if it is certain that they are not among them by another name."""
    before = list(nics.values())
    for nic, key in zip(document.nics, keys, strict=True):
        if key in nics:
            known = nics[key]
            nics[key] = replace(known, name=known.name or nic.name, pci=known.pci or nic.pci, gbps=known.gbps or nic.gbps)
            continue
        taken = {known.id for known in nics.values()}
        own = next((text for text in (nic.id, nic.name, nic.pci) if text and text not in taken), key)
        if not all(_differ(nic, known) for known in before):
            notes.add("nic-left-out", nic.id, f"only in {name}, and nothing tells which of the other NICs it is; left out")
        else:
            nics[key] = replace(nic, id=own)


def _differ(a: Nic, b: Nic) -> bool:
    """Tell whether two NICs that have no key in common are certainly two."""
    return bool(a.name and b.name) or bool(a.pci and b.pci and a.pci != b.pci)


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")
