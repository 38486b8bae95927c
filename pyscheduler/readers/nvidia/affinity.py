"""CPU and NUMA affinity of the GPUs of a matrix."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from pyscheduler.readers.nvidia.rows import Decoded, Note
from pyscheduler.readers.reading import Finding

__all__ = ["Affinities"]

_CPUS: Final = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_SINGLES: Final = re.compile(r"\d+(,\d+){3,}")
_ABSENT: Final = frozenset({"", "N/A", "-1", "NA"})


@dataclass(slots=True)
class Affinities:
    """What the columns behind the links say. `columns` are those that the header names; `cut`: some are unreadable."""

    columns: tuple[str, ...]
    cut: bool = False
    _cpus: dict[str, str | None] = field(default_factory=dict)
    _numa: dict[str, int | None] = field(default_factory=dict)
    _most: int = 0
    _odd: dict[str, list[str]] = field(default_factory=dict)

    def cpus(self, gpu: str) -> str | None:
        """Return the CPU affinity as printed, None if there is none to be read."""
        return self._cpus.get(gpu)

    def numa(self, gpu: str) -> int | None:
        """Return the NUMA node, None unless it is one number."""
        return self._numa.get(gpu)

    def add(self, gpu: str, line: int, tail: dict[str, str], *, lost: bool) -> None:
        """Take the affinities of a row. `lost`: the row has been reported as cut, so what it lacks is no news."""
        self._most = max(self._most, sum(bool(tail.get(column)) for column in self.columns))
        if "cpu" in self.columns:
            self._cpus[gpu] = self._read_cpus(gpu, line, tail.get("cpu", ""), lost=lost)
        if "numa" in self.columns:
            self._numa[gpu] = self._read_numa(gpu, tail.get("numa", ""))

    def check_end(self, text: str, decoded: Decoded, *, early: bool) -> None:
        """Drop the last word of the row that ends the input, if it may be cut.

        That is where rows are missing (`early`), or rows before it have more behind their links.
        """
        printed = [column for column in self.columns if decoded.tail.get(column)]
        complete = len(printed) >= self._most or (printed and printed[-1] == self.columns[-1])
        if not decoded.whole or (complete and not (early and printed)):
            return
        where = "before its affinities"
        if printed:
            where = f'in or behind "{decoded.tail[printed[-1]]}"'
            if not text[-1:].isspace():
                del decoded.tail[printed[-1]]
        decoded.notes.append(Note("row-cut", f"is cut {where}; what it does not show is unknown"))

    def _read_cpus(self, gpu: str, line: int, text: str, *, lost: bool) -> str | None:
        if text in _ABSENT:
            if not text and not lost:
                self._note("affinity-empty", gpu)
            return None
        if not _CPUS.fullmatch(text):
            self.cut = True
            self._note("affinity-unreadable", f'{gpu} (line {line}, "{text[:40]}")')
            return None
        if _SINGLES.fullmatch(text):
            self._note("affinity-cut", gpu)
        return text

    def _read_numa(self, gpu: str, text: str) -> int | None:
        if text.isascii() and text.isdigit() and len(text) < 6:
            return int(text)
        if text not in _ABSENT:
            self._note("numa-not-one", f"{gpu} ({text[:40]})")
        return None

    def _note(self, code: str, gpu: str) -> None:
        self._odd.setdefault(code, []).append(gpu)

    def findings(self) -> list[Finding]:
        """Return one finding per kind of oddity."""
        return [Finding(code, _TEXTS[code].format(", ".join(gpus))) for code, gpus in self._odd.items()]


_TEXTS: Final = {
    "affinity-empty": "CPU affinity of {} is empty: unknown",
    "affinity-unreadable": "CPU affinity of {} is cut or unreadable: unknown",
    "affinity-cut": "CPU affinity of {} is a list of single CPUs, which nvidia-smi cuts: it may not be the whole set",
    "numa-not-one": "NUMA affinity of {} is not one node: unknown",
}
