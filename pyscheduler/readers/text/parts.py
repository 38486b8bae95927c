"""What readers of node documents share: addresses, masks, and the fields of a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from pyscheduler.readers.text.excerpt import excerpt

__all__ = ["MAX_DEVICES", "address", "cpu_list", "fields", "integer", "node_index", "some"]

# An NVLink domain of today has 72 GPUs, the next 576. What lists more is no machine, and pairs are its square.
MAX_DEVICES: Final = 1024
# Linux is built with at most 1024 NUMA nodes (CONFIG_NODES_SHIFT 10).
_MAX_NODES: Final = 1024

_ADDRESS: Final = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-9a-f])")
_INTEGER: Final = re.compile(r"-?\d{1,9}")
_NAMED: Final = 6


def address(text: object) -> str | None:
    """Return a PCI address as ``0000:1a:00.0``, None if `text` is none. Tools pad the domain to 4 or 8 digits, or leave it out."""
    found = _ADDRESS.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    if found is None:
        return None
    domain, bus, device, function = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus:0>2}:{device:0>2}.{function}"


def integer(text: object) -> int | None:
    """Return the whole number that `text` is, None if it is none."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    return int(text) if isinstance(text, str) and text.isascii() and _INTEGER.fullmatch(text.strip()) else None


def node_index(text: object) -> int | None:
    """Return a NUMA node, None if it is not known: -1, 2^32-1, a list, N/A."""
    number = integer(text)
    return number if number is not None and 0 <= number < _MAX_NODES else None


def cpu_list(mask: str | None) -> str | None:
    """Return the CPUs of a mask of comma separated 32-bit hexadecimal words, the lowest last, as ``0-11,24-35``."""
    words = (mask or "").lower().replace("0x", "").split(",")
    if not all(re.fullmatch(r"[0-9a-f]{0,8}", word) for word in words) or len(words) > _MAX_NODES:
        return None
    bits = bin(int("".join(f"{word:0>8}" for word in words), 16))[:1:-1]
    spans = ((run.start(), run.end() - 1) for run in re.finditer("1+", bits))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans) or None


def fields(name: str, **known: Any) -> dict[str, Any]:
    """Return a GPU of the document: every identity field is there, None where it is not known."""
    return {"id": name, "numa": None, "cpu_affinity": None, "uuid": None, "pci": None, "model": None, **known}


def some(names: Iterable[str]) -> str:
    """Return the first of `names`, cut where they are very long, and how many more there are."""
    listed = list(names)
    rest = len(listed) - _NAMED
    return ", ".join(map(excerpt, listed[:_NAMED])) + (f" and {rest} more" if rest > 0 else "")
