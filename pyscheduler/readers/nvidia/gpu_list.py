"""The lines ``GPU 0: NAME (UUID: GPU-...)`` of ``nvidia-smi -L`` and ``nvlink``, and the MIG devices below them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Card", "card_line", "cards"]

_CARD: Final = re.compile(r"\s*GPU (\d{1,4}): (\S.*?)(?:\s*\(UUID: (GPU-[0-9a-fA-F-]+)\)?)?\s*")
_MIG: Final = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[0-9a-zA-Z/-]+)\)\s*")


@dataclass(slots=True)
class Card:
    """One GPU of the list. `line` counts from 1; `mig` holds {uuid, profile} of its instances."""

    line: int
    index: int
    model: str
    uuid: str | None
    mig: list[dict[str, Any]] = field(default_factory=list)


def card_line(line: str, number: int) -> Card | None:
    """Return the GPU that `line` begins, None if it begins none."""
    match = _CARD.fullmatch(line) if len(line) < 512 else None
    return Card(number, int(match[1]), match[2], match[3]) if match else None


def cards(lines: Sequence[str]) -> dict[int, Card]:
    """Return the GPUs by index that the text lists; of an index that comes twice the first."""
    found: dict[int, Card] = {}
    current: Card | None = None
    for number, line in enumerate(lines, start=1):
        if card := card_line(line, number):
            current = found.setdefault(card.index, card)
        elif current and len(line) < 512 and (mig := _MIG.fullmatch(line)):
            current.mig.append({"uuid": mig[3], "profile": mig[1]})
    return found
