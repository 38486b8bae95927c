"""AMD's link tables, from text or JSON, to the links of a node document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

from pyscheduler.readers.amd.tables import Cells, Table
from pyscheduler.readers.machine.node_links import agreed
from pyscheduler.readers.reading import Finding, RefusedError
from pyscheduler.readers.text.parts import MAX_DEVICES, integer, some

__all__ = ["LinkTables"]

_TYPES: Final = {"XGMI": "XGMI", "PCIE": "PCIE"}
_REFUSED: Final = ("DISABLED", "FALSE")


@dataclass(slots=True)
class LinkTables:
    """What a tool said of each ordered pair of GPUs, and the findings on it.

    Attributes
    ----------
    kinds, weights, access
        Words as printed, by (GPU, other GPU). Hops and bandwidth are not kept: no cost can be told from them.
    """

    kinds: Cells = field(default_factory=dict)
    weights: Cells = field(default_factory=dict)
    access: Cells = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    complete: bool = True
    _seen: dict[str, None] = field(default_factory=dict)

    def add_gpus(self, names: Iterable[str]) -> None:
        """Add those that are not there yet.

        Raises
        ------
        RefusedError
            If there are more than any machine has.

        """
        self._seen.update(dict.fromkeys(names))
        if len(self._seen) > MAX_DEVICES:
            raise RefusedError(f"more than {MAX_DEVICES} GPUs: no machine has so many")

    @property
    def gpus(self) -> list[str]:
        """Names of the GPUs, in the order of the input."""
        return list(self._seen)

    def add_tables(self, tables: Iterable[Table]) -> None:
        """Add tables of text. One whose title promises weights and whose cells are link types is a table of link types."""
        for table in tables:
            kind = self._kind(table)
            if kind:
                self.add_gpus(table.names())
            faults: list[Finding] = []
            target = {"type": self.kinds, "weight": self.weights, "access": self.access}.get(kind)
            for pair, words in (table.cells(kind, faults) if target is not None else {}).items():
                assert target is not None
                target.setdefault(pair, []).extend(words)
            self.findings += faults
            self.complete = self.complete and not faults

    def _kind(self, table: Table) -> str:
        if table.kind == "type" or not table.holds_link_types():
            return table.kind
        if table.kind:
            said = f'line {table.line}: table "{table.title}" holds link types: it is read as such, and gives no {table.kind}'
            self.findings.append(Finding("table-mistitled", said))
        return "type"

    def links(self, ids: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the links of the document, in the order of `ids`: the id of each GPU by its name."""
        merge = _Merge(self, ids)
        found = [merge.link(a, b) for a, b in combinations(ids, 2)]
        merge.report()
        return found


class _Merge:
    """Takes both directions of each pair together, and gathers what is wrong with them."""

    def __init__(self, tables: LinkTables, ids: Mapping[str, str]) -> None:
        self._tables = tables
        self._ids = ids
        self._faults: dict[tuple[str, str], list[str]] = {}

    def link(self, a: str, b: str) -> dict[str, Any]:
        pair = f"{self._ids[a]}-{self._ids[b]}"
        found: dict[str, Any] = {"a": self._ids[a], "b": self._ids[b], "type": self._type(a, b, pair)}
        cost = self._cost(a, b, pair)
        if cost is not None:
            found["cost"] = cost
        words = _both(self._tables.access, a, b)
        if any(word in _REFUSED for word in words):
            self._fault("peer-access-disabled", "peer access is disabled, whatever link is listed", pair)
        return found

    def _type(self, a: str, b: str, pair: str) -> str:
        words = _both(self._tables.kinds, a, b)
        whole = [word for word in words if not _cut(word)]
        unknown = [word for word in whole if word not in _TYPES]
        if unknown:
            self._fault("link-type-unknown", f'link type "{unknown[0]}" is not known', pair)
            return "?"
        if not whole:
            self._fault("link-missing", "no readable link type", pair)
            return "?"
        if len(words) > len(whole) or not self._mirrored(a, b):
            self._fault("cell-missing", "one direction is missing or cut, the other one is used", pair)
        if len(set(whole)) > 1:
            self._fault("direction-mismatch", "the input says both XGMI and PCIE, the weaker is used", pair)
        return agreed(_TYPES[word] for word in whole)

    def _mirrored(self, a: str, b: str) -> bool:
        return (a, b) in self._tables.kinds and (b, a) in self._tables.kinds

    def _cost(self, a: str, b: str, pair: str) -> int | None:
        words = _both(self._tables.weights, a, b)
        costs = [cost for word in words if (cost := integer(word)) is not None and cost > 0]
        if words and not costs:
            self._fault("weight-unknown", "the weight cannot be read", pair)
        if len(set(costs)) > 1:
            self._fault("direction-mismatch", "the input gives several weights, the largest is used", pair)
        return max(costs, default=None)

    def _fault(self, code: str, said: str, pair: str) -> None:
        self._faults.setdefault((code, said), []).append(pair)

    def report(self) -> None:
        tables = self._tables
        for (code, said), pairs in self._faults.items():
            tables.findings.append(Finding(code, f"{said}: {some(pairs)}"))
        tables.complete = tables.complete and not any(code in _INCOMPLETE for code, _ in self._faults)


_INCOMPLETE: Final = ("link-type-unknown", "link-missing", "cell-missing", "weight-unknown")


def _both(cells: Cells, a: str, b: str) -> list[str]:
    return cells.get((a, b), []) + cells.get((b, a), [])


def _cut(word: str) -> bool:
    """Tell whether a paste cut the word: nothing can be told from it, and the mirrored cell may be whole."""
    return word not in _TYPES and any(kind.startswith(word) for kind in _TYPES)
