"""NVLink and Infinity Fabric of an NCCL topology, from what each GPU says of its own links."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

from pyscheduler.readers.reading import Finding
from pyscheduler.readers.text.parts import address, integer, some

__all__ = ["Fabric"]

# NCCL, src/graph/topo.cc: 0x068000 is an NVSwitch, 0x068001 the NVLink port of a POWER CPU.
_SWITCH_CLASS: Final = "0x068000"
_CPU_CLASS: Final = "0x068001"
# What NCCL writes for switches that it cannot see, as in a domain over several machines.
_STAND_IN: Final = "fffffff"
_PREFIX: Final = {"nvlink": "NV", "xgmi": "XGMI"}
# Two digits: more links than any GPU has are a mistake in the file.
_MAX_LINKS: Final = 99
_NONE: Final[Counter[str]] = Counter()

Key = tuple[str | None, str | None]


class Fabric:
    """Fast links between the GPUs of one file, by position.

    Parameters
    ----------
    gpus
        Host, PCI address and ``<gpu>`` element of each GPU; no element where only its PCI class is known.
    labels
        What findings call each GPU.
    """

    def __init__(self, gpus: Sequence[tuple[str | None, str | None, Element | None]], labels: Sequence[str]) -> None:
        self.findings: list[Finding] = []
        self.complete = True
        self._labels = labels
        self._at: dict[Key, int] = {(host, pci): i for i, (host, pci, _) in enumerate(gpus) if pci}
        self._direct: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
        self._uplinks: Counter[int] = Counter()
        self._switches: dict[Key, list[int]] = defaultdict(list)
        self._unknown = {i for i, (_, _, element) in enumerate(gpus) if element is None}
        self._selfish: list[int] = []
        self._astray: list[str] = []
        for i, (host, _, element) in enumerate(gpus):
            for link in () if element is None else element:
                if link.tag in _PREFIX:
                    self._take(i, host, link)
        self._group = self._groups(len(gpus))
        self._report()

    def kind(self, i: int, j: int) -> str | None:
        """Return the type of the fast link, ``?`` if it is unknown, None if there is none."""
        if i in self._unknown or j in self._unknown:
            return self._known(i, j) or "?"
        return self._known(i, j)

    def _known(self, i: int, j: int) -> str | None:
        switched = min(self._uplinks[i], self._uplinks[j]) if self._group[i] == self._group[j] is not None else 0
        there, back = self._direct.get((i, j), _NONE), self._direct.get((j, i), _NONE)
        for tag, prefix in _PREFIX.items():
            count = min(there[tag], back[tag]) + (switched if tag == "nvlink" else 0)
            if count:
                return f"{prefix}{min(count, _MAX_LINKS)}"
        return None

    def _take(self, i: int, host: str | None, link: Element) -> None:
        target, kind = link.get("target", ""), link.get("tclass", "").lower()
        count = integer(link.get("count"))
        if count is None or not 0 < count <= _MAX_LINKS:
            self._astray.append(f'{self._labels[i]} (count "{link.get("count", "")}")')
        elif target.lower().startswith(_STAND_IN):
            self._uplink(i, (None, None), count)
        elif kind == _SWITCH_CLASS:
            self._uplink(i, (host, address(target) or target), count)
        elif kind != _CPU_CLASS:
            self._peer(i, self._at.get((host, address(target))), count, link)

    def _uplink(self, i: int, switch: Key, count: int) -> None:
        self._uplinks[i] += count
        self._switches[switch].append(i)

    def _peer(self, i: int, j: int | None, count: int, link: Element) -> None:
        if j is None:
            self._astray.append(f"{self._labels[i]} (target {link.get('target') or 'missing'})")
        elif i == j:
            self._selfish.append(i)
        else:
            self._direct[i, j][link.tag] += count

    def _groups(self, gpus: int) -> list[int | None]:
        """Return the fabric of each GPU: those that share a switch are on one."""
        parent = list(range(gpus))

        def root(i: int) -> int:
            while parent[i] != i:
                parent[i] = parent[parent[i]]
                i = parent[i]
            return i

        for members in self._switches.values():
            for member in members:
                parent[root(member)] = root(members[0])
        return [root(i) if self._uplinks[i] else None for i in range(gpus)]

    def _report(self) -> None:
        self._unknown.update(self._selfish)
        if self._selfish:
            self._say("nvlink-to-itself", "NVLink points at the GPU itself, so its links are unknown", self._selfish)
        if self._astray:
            self.findings.append(
                Finding("link-target-unknown", f"links whose other end is not in the file are not used: {some(self._astray)}")
            )
        self.complete = not self._unknown and not self._astray
        self._report_directions()
        self._report_switched()

    def _report_directions(self) -> None:
        differ = [
            (i, j)
            for (i, j), there in self._direct.items()
            if i < j or (j, i) not in self._direct
            if self._direct.get((j, i), _NONE) != there
        ]
        if differ:
            pairs = some(f"{self._labels[i]} to {self._labels[j]}" for i, j in differ)
            self.findings.append(
                Finding("direction-mismatch", f"the two ends name different numbers of links, the smaller counts: {pairs}")
            )

    def _report_switched(self) -> None:
        most = max(self._uplinks.values(), default=0)
        without = [i for i, links in self._uplinks.items() if 0 < links < most]
        if without:
            self._say("nvlink-degraded", f"fewer than {most} NVLinks to the switches, unlike other GPUs", without)
        linked = {i for i, links in self._uplinks.items() if links} | {i for pair in self._direct for i in pair}
        alone = [i for i in range(len(self._labels)) if i not in linked | self._unknown] if linked else []
        if alone:
            self._say("nvlink-missing", "no NVLink or Infinity Fabric, unlike other GPUs", alone)

    def _say(self, code: str, said: str, gpus: Sequence[int]) -> None:
        self.findings.append(Finding(code, f"{said}: {some(self._labels[i] for i in dict.fromkeys(gpus))}"))
