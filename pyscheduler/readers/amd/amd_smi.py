"""`amd-smi topology`, as tables or as JSON of either schema.

The old schema has one mapping per table, keyed ``gpu_1``; the new one a list ``links`` with one entry per other GPU.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from pyscheduler.readers.amd.links import LinkTables
from pyscheduler.readers.amd.tables import clean_lines, is_address, tables
from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text.parts import address, fields, integer

__all__ = ["FORMAT", "read", "recognises"]

FORMAT: Final = "amd-smi"

_MARK: Final = re.compile(r"^[^\w\n]*(?:ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW) TABLE\b", re.MULTILINE | re.IGNORECASE)
# Not a "[WARNING]" that the tool printed before it.
_JSON: Final = re.compile(r'^[ \t\ufeff]*(?=\[\s*\{|\{\s*")', re.MULTILINE)
_KEY: Final = re.compile(r"gpu_?(\d{1,4})")
_OLD: Final = (("link_type", "kinds"), ("weight", "weights"), ("link_accessibility", "access"))
_NEW: Final = (("link_type", "kinds"), ("weight", "weights"), ("link_status", "access"))


def recognises(text: str) -> bool:
    """Tell whether `text` is of `amd-smi topology`."""
    return _MARK.search(text) is not None or (
        '"link_type"' in text and ('"hops"' in text or '"num_hops"' in text or '"weight"' in text)
    )


def read(text: str) -> Reading:
    """Return the node document.

    Raises
    ------
    RefusedError
        If there is no table of links, or the JSON is broken: half of it is no machine.

    """
    links = LinkTables()
    if _MARK.search(text):
        links.add_tables(tables(clean_lines(text)))
        pci = {name: address(name) for name in links.gpus if is_address(name)}
        names = _ids(links.gpus)
    else:
        pci = _take_json(_entries(text), links)
        names = {name: name for name in links.gpus}
    if not links.kinds and len(links.gpus) != 1:
        raise RefusedError("no table of link types in it; use the output of `amd-smi topology`", 1)
    kinds = links.links(names)
    gpus = [fields(names[name], pci=pci.get(name)) for name in links.gpus]
    body = {"gpus": gpus, "nics": [], "links": kinds, "nic_links": []}
    return Reading("node", FORMAT, body, links.complete, tuple(links.findings))


def _ids(gpus: list[str]) -> dict[str, str]:
    """Return the ids: by position where rows are named by PCI address."""
    return {name: f"GPU{i}" if is_address(name) else name for i, name in enumerate(gpus)}


def _entries(text: str) -> list[dict[str, Any]]:
    start = _JSON.search(text)
    if start is None:
        raise RefusedError("neither a table nor JSON of `amd-smi topology`", 1)
    try:
        raw, _ = json.JSONDecoder().raw_decode(text, start.end())
    except json.JSONDecodeError as fault:
        raise RefusedError(
            f"not valid JSON ({fault.msg}); use the whole output of `amd-smi topology --json`", fault.lineno
        ) from None
    except (ValueError, RecursionError):
        raise RefusedError("not valid JSON (a number or a nesting that no tool writes)") from None
    if isinstance(raw, dict):
        raw = next((value for value in raw.values() if isinstance(value, list)), [raw])
    entries = [entry for entry in raw if isinstance(entry, dict) and integer(entry.get("gpu")) is not None]
    if not entries:
        raise RefusedError('no entry with a "gpu" in the JSON; use the output of `amd-smi topology --json`', 1)
    return entries


def _take_json(entries: list[dict[str, Any]], links: LinkTables) -> dict[str, str | None]:
    """Take all entries, and return the PCI addresses."""
    pci: dict[str, str | None] = {}
    for entry in entries:
        name = f"GPU{integer(entry['gpu'])}"
        if name in pci:
            links.complete = False
            links.findings.append(
                Finding("gpu-repeated", f"{name} is listed twice; where its entries disagree the weaker link is used")
            )
        pci[name] = address(entry.get("bdf"))
        links.add_gpus([name])
        for other, table, value in (*_new_links(entry), *_old_links(entry)):
            links.add_gpus([other])
            if other != name:
                getattr(links, table).setdefault((name, other), []).append(value)
    return pci


def _new_links(entry: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (other GPU, table, word) of the new schema."""
    rows = entry.get("links")
    for row in rows if isinstance(rows, list) else ():
        other = integer(row.get("gpu")) if isinstance(row, dict) else None
        for key, table in _NEW if other is not None else ():
            if key in row:
                yield f"GPU{other}", table, str(row[key]).upper()


def _old_links(entry: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (other GPU, table, word) of the old schema."""
    for key, table in _OLD:
        cells = entry.get(key)
        for other, value in cells.items() if isinstance(cells, dict) else ():
            named = _KEY.fullmatch(other)
            if named:
                yield f"GPU{int(named[1])}", table, str(value).upper()
