"""The JSON of ``rocm-smi -a``: one mapping per card, all values text, the unit in the key. Keys change between versions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pyscheduler.readers.cards.metric_samples import Card, Sample, Table, is_placeholder
from pyscheduler.readers.reading import Finding, Reading
from pyscheduler.readers.text.json_text import json_or_none, name_of
from pyscheduler.readers.text.parts import address, some

__all__ = ["cards", "reading"]

_CARD: Final = re.compile(r"card\d{1,4}", re.ASCII)

# Names of the document and the keys of rocm-smi 4 to 7 (folded), the preferred first. Read/write activity keeps its own
# name: it stands beside the VRAM share in newer versions, and older ones print one of the two as "memory use".
_KEYS: Final = {
    "util": ("gpu use (%)",),
    "mem_util": ("gpu memory use (%)",),
    "GPU Memory Read/Write Activity (%)": ("gpu memory read/write activity (%)",),
    "vram_used_pct": ("gpu memory allocated (vram%)",),
    "power_w": (
        "average graphics package power (w)",
        "current socket graphics package power (w)",
        "current graphics package power (w)",
    ),
    "temp_edge_c": ("temperature (sensor edge) (c)",),
    "vram_total_b": ("vram total memory (b)",),
    "vram_used_b": ("vram total used memory (b)",),
}


def cards(text: str) -> dict[str, dict[str, Any]]:
    """Return the cards of the JSON, with folded keys; none if it is no such JSON or has no metric of a card.

    Warnings that rocm-smi prints before the JSON are skipped.
    """
    start = text.find("{")
    if start < 0 or '"card' not in text:
        return {}
    raw = json_or_none(text[start : text.rfind("}") + 1])
    if not isinstance(raw, dict):
        return {}
    known = {key for keys in _KEYS.values() for key in keys}
    found = {
        name: {key.casefold().strip(): value for key, value in card.items()}
        for name, card in raw.items()
        if _CARD.fullmatch(name) and isinstance(card, dict)
    }
    return found if any(not known.isdisjoint(card) for card in found.values()) else {}


def reading(name: str, found: Mapping[str, Mapping[str, Any]]) -> Reading:
    """Return the document of format `name`."""
    table = Table()
    identities = {device: _card(device, card) for device, card in found.items()}
    uuids = [card.uuid for card in identities.values() if card.uuid]
    twice = sorted({uuid for uuid in uuids if uuids.count(uuid) > 1})
    for device, card in found.items():
        identity = identities[device]
        if identity.uuid in twice:
            identity = replace(identity, uuid=None)
        for metric, keys in _KEYS.items():
            text = next((text for key in keys if (text := _value(card.get(key)))), None)
            if text is not None:
                table.add(Sample(metric, {}, text), identity, None)
    repeated = [Finding("uuid-repeated", f"Unique ID {some(twice)} is on several cards: it identifies none")] if twice else []
    return Reading("metrics", name, table.body(), findings=(*repeated, *_silent(found, table), *table.findings()))


def _card(device: str, card: Mapping[str, Any]) -> Card:
    return Card(
        uuid=_value(card.get("unique id")),
        serial=_value(card.get("serial number")),
        pci=address(card.get("pci bus")),
        device=device,
    )


def _value(raw: Any) -> str | None:
    text = repr(raw) if isinstance(raw, float) else name_of(raw)
    return None if text is None or (is_placeholder(text) and text.strip("0.")) else text


def _silent(found: Mapping[str, Any], table: Table) -> list[Finding]:
    """Report cards without a single value: unknown, not idle."""
    silent = [device for device in found if device not in {card.device for card in table.cards()}]
    return [Finding("no-sample", f"{some(silent)}: no value that is a number; unknown, not idle")] if silent else []
