"""Samples of GPU metrics to one entry per card, metric and time: which card, whose, and is the number one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyscheduler.readers.reading import Finding
from pyscheduler.readers.text.parts import address, some

__all__ = ["BLANKS", "BLANK_64", "Card", "Sample", "Table", "blank_reason", "is_placeholder", "number"]

_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?\d{1,30}", re.ASCII)
_NOT_FINITE: Final = ("nan", "inf", "infinity")
# Every printer of exponents writes at least two digits, or one behind a minus: "e+0" is the beginning of "e+09".
_CUT_EXPONENT: Final = re.compile(r"[eE](?:\+\d|-0)")

# Blanks of DCGM (dcgm_structs.h): 0x7ffffffffffffff0 and up for 64-bit integers, 0x7ffffff0 for 32-bit, 2^47 for floats;
# each followed by "not found", "not supported", "no permission".
BLANK_64: Final = 2**63 - 16
BLANKS: Final = frozenset((*range(0x7FFFFFF0, 0x7FFFFFF4), *range(2**47, 2**47 + 4)))
_BLANK_NAMES: Final = ("blank", "not found", "not supported", "no permission")

_PLACEHOLDERS: Final = frozenset(("", "n/a", "na", "none", "null", "nil", "unknown", "undefined", "<nil>"))

_UUIDS: Final = ("UUID", "uuid", "gpu_uuid", "GPU_UUID", "DCGM_FI_DEV_UUID")
_SERIALS: Final = ("serial_number", "serial")
_ADDRESSES: Final = ("pci_bus_id", "pci_bus", "gpu_pci_bus_id", "bdf")
_HOSTS: Final = ("Hostname", "hostname")
_INSTANCE: Final = "GPU_I_ID"
# What tells cards apart where they have no UUID (two dies of one card share its serial number). An index is no identity.
_INDEXES: Final = ("gpu", "gpu_id", "device", "instance")
# Of the card, of who uses it, and of the way the sample came: no other quantity.
_SAME_QUANTITY: Final = frozenset((
    *_UUIDS, *_SERIALS, *_ADDRESSES, *_HOSTS, *_INDEXES, _INSTANCE,
    "__name__", "modelName", "model_name", "card_model", "card_series", "card_vendor", "driver_version", "vbios_version",
    "DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION", "DCGM_FI_DEV_BRAND", "DCGM_FI_DEV_SERIAL", "GPU_I_PROFILE",
    "err_code", "err_msg", "gpu_compute_partition_type", "gpu_memory_partition_type", "deployment_mode", "cluster_name",
    "pod", "pod_uid", "namespace", "container", "job_id", "job_user", "job_partition", "hpc_job", "vgpu", "kfd_process_id",
    "exported_pod", "exported_namespace", "exported_container", "exported_job", "exported_instance", "exported_hostname",
    "job", "endpoint", "service", "node", "node_name", "kubernetes_node", "cluster", "region", "zone", "prometheus",
    "prometheus_replica", "replica", "receive", "tenant_id", "app", "monitor",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample as it stands there. `time` in Unix seconds, None if it has none; `line` counts from 1."""

    name: str
    labels: Mapping[str, str]
    value: str
    time: float | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """Which card a sample is of; None where the source does not say, or says a placeholder."""

    node: str | None = None
    uuid: str | None = None
    serial: str | None = None
    pci: str | None = None
    device: str | None = None
    mig: str | None = None

    @staticmethod
    def of(labels: Mapping[str, str]) -> Card:
        """Return the card of a sample with these labels."""
        uuid = next((text for key in _UUIDS if (text := _identity(labels.get(key), index=True))), None)
        return Card(
            node=next((text for key in _HOSTS if (text := _identity(labels.get(key)))), None),
            uuid=uuid,
            serial=None if uuid else next((text for key in _SERIALS if (text := _identity(labels.get(key)))), None),
            pci=None if uuid else next((text for key in _ADDRESSES if (text := address(labels.get(key)))), None),
            mig=labels.get(_INSTANCE) or None,
        )

    @property
    def is_known(self) -> bool:
        """Whether anything identifies the card."""
        return any((self.uuid, self.serial, self.pci, self.device))

    @property
    def name(self) -> str:
        """The card in a message."""
        return self.uuid or self.serial or self.pci or self.device or "a card without identity"

    def fields(self) -> dict[str, Any]:
        """Return the identity as the document writes it."""
        others = {key: value for key in ("serial", "pci", "device") if (value := getattr(self, key))}
        return {"node": self.node, "uuid": self.uuid, **others, "mig": self.mig}


def is_placeholder(text: str) -> bool:
    """Tell whether a text stands where an identity should be: empty, N/A, xxxx, 0."""
    folded = text.strip().casefold()
    return folded in _PLACEHOLDERS or not folded.removeprefix("0x").strip("x0-. ")


def _identity(text: str | None, *, index: bool = False) -> str | None:
    if text is None or is_placeholder(text) or (index and text.isdigit()):
        return None
    return text


def number(text: str) -> int | float | None:
    """Return the number that a sample's value is, None if it is none. It may still be a blank."""
    if text.lstrip("+-").casefold() in _NOT_FINITE or _NUMBER.fullmatch(text):
        return int(text) if _WHOLE.fullmatch(text) else float(text)
    return None


def blank_reason(text: str, value: float) -> str | None:
    """Return why a number is no measurement: not finite, a blank of DCGM, or cut. None if it is one."""
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 (NaN differs from itself)
        return "not a finite number"
    if value >= BLANK_64 or value in BLANKS:
        code = int(value) % 16 if isinstance(value, int) or value < BLANK_64 else 0
        name = _BLANK_NAMES[code] if code < len(_BLANK_NAMES) else _BLANK_NAMES[0]
        return f"sentinel: {name}"
    return "exponent is cut" if _CUT_EXPONENT.search(text[-3:]) else None


@dataclass(slots=True)
class _Entry:
    card: Card
    metric: str
    labels: dict[str, str]
    value: int | float
    time: float | None
    owners: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class Table:
    """Collects samples: one entry per card, metric and time.

    Attributes
    ----------
    timed
        Keep every time, as of a range; else only the newest sample of each card and metric.
    """

    timed: bool = False
    discarded: list[dict[str, Any]] = field(default_factory=list)
    _entries: dict[tuple[Any, ...], _Entry] = field(default_factory=dict)
    _blanks: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _repeated: dict[str, None] = field(default_factory=dict)
    _differing: dict[str, None] = field(default_factory=dict)

    def add(self, sample: Sample, card: Card, owner: str | None) -> None:
        """Add one sample. `owner` is the pod that uses the card, None if that is not known."""
        value = number(sample.value)
        reason = "value is no number" if value is None else blank_reason(sample.value, value)
        labels = {k: v for k, v in sorted(sample.labels.items()) if v and k not in _SAME_QUANTITY}
        indexes = () if card.uuid else _INDEXES[:2] if card.is_known else _INDEXES
        labels |= {key: text for key in indexes if (text := sample.labels.get(key))}
        if value is None or reason is not None:
            self._discard(sample, card, labels, reason or "")
            return
        entry = _Entry(card, sample.name, labels, value, sample.time)
        self._merge((card, sample.name, tuple(labels.items()), sample.time if self.timed else None), entry, owner)

    def _merge(self, key: tuple[Any, ...], entry: _Entry, owner: str | None) -> None:
        if owner is not None:
            entry.owners[owner] = None
        known = self._entries.setdefault(key, entry)
        if (known.time or 0) < (entry.time or 0):
            self._entries[key] = entry
        elif known is not entry and known.time == entry.time:
            (self._repeated if known.value == entry.value else self._differing)[f"{entry.metric} of {entry.card.name}"] = None
            known.value = max(known.value, entry.value)
            known.owners |= entry.owners

    def _discard(self, sample: Sample, card: Card, labels: dict[str, str], reason: str) -> None:
        fields = {**card.fields(), "metric": sample.name, "value": sample.value}
        fields |= {"labels": labels} if labels else {}
        fields |= {"time": sample.time} if self.timed else {}
        self.discarded.append({**fields, "reason": reason})
        self._blanks.setdefault((sample.name, reason), []).append(f"{sample.value[:40]} of {card.name}")

    def cards(self) -> Iterable[Card]:
        """Return the cards that have a value, each once."""
        return dict.fromkeys(entry.card for entry in self._entries.values())

    def body(self, unreadable: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """Return the fields of the document; `unreadable` are lines that are no samples."""
        return {"series": [self._row(e) for e in self._entries.values()], "discarded": [*self.discarded, *unreadable]}

    def _row(self, entry: _Entry) -> dict[str, Any]:
        row = {**entry.card.fields(), "metric": entry.metric, "value": entry.value}
        if entry.labels:
            row["labels"] = entry.labels
        if self.timed:
            row["time"] = entry.time
        if len(entry.owners) == 1:
            row["pod"] = next(iter(entry.owners))
        return row

    def findings(self) -> list[Finding]:
        """Return what was dropped or merged."""
        found = [
            Finding("sample-discarded", f"{metric}: {some(values)} discarded ({reason})")
            for (metric, reason), values in self._blanks.items()
        ]
        if self._repeated:
            found.append(Finding("sample-repeated", f"{some(self._repeated)}: the same sample more than once, counted once"))
        if self._differing:
            found.append(Finding("samples-differ", f"{some(self._differing)}: several values at one time, the highest counts"))
        shared = [f"{e.card.name} ({some(e.owners)})" for e in self._entries.values() if len(e.owners) > 1]
        if shared:
            found.append(Finding("several-pods", f"{some(dict.fromkeys(shared))}: used by more than one pod"))
        return found
