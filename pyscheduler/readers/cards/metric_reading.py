"""Samples of exporters to a metrics document: which of them are of GPUs, and what a reader of the numbers must know."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyscheduler.readers.cards.exposition import parse
from pyscheduler.readers.cards.metric_samples import Card, Sample, Table, blank_reason, is_placeholder, number
from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text.parts import some

__all__ = ["of_exposition", "reading"]

_OF_A_GPU: Final = frozenset((
    "UUID", "uuid", "gpu_uuid", "gpu", "gpu_id", "GPU_I_ID", "serial_number", "pci_bus_id", "modelName", "card_model",
))  # fmt: skip
# DCGM measures NVSwitches and Grace CPUs as well.
_OF_ANOTHER: Final = frozenset(("nvswitch", "cpu", "cpucore"))
_GPU_NAMES: Final = ("DCGM_", "gpu_", "amd_gpu_", "nvidia_gpu_")
_IDENTITIES: Final = ("UUID", "uuid", "gpu_uuid", "serial_number", "hostname", "Hostname")
# The value of XID_ERRORS is the last code of the driver, of its counters a number; both are 0 while all is well.
# gpu_health is 1 while all is well; DCGM's health is 0, 10 (warning) or 20 (failed).
_XID: Final = re.compile(r"DCGM_FI_DEV_XID_ERRORS?|DCGM_EXP_XID_ERRORS_(?:COUNT|TOTAL)")
_REMAP: Final = re.compile(r"DCGM_FI_DEV_ROW_REMAP_FAIL(?:URE|ED)")
_HEALTH: Final = "gpu_health"
_DCGM_HEALTH: Final = "DCGM_EXP_GPU_HEALTH_STATUS"
_DCGM_FAILED: Final = 20

# Names of vGPU types: A100-10C, NVIDIA L40S-48Q, H100-1-10CME; those of whole cards end in the unit (A100-SXM4-40GB).
_VGPU: Final = re.compile(r"(?:NVIDIA |GRID )?[A-Z]\w*(?:-\d)?-\d+[ABCQ](?:ME)?")


def of_exposition(name: str, text: str) -> Reading:
    """Return the document of format `name` of what an exporter serves.

    Raises
    ------
    RefusedError
        If no line is a sample of a GPU.

    """
    found = parse(text)
    if not any(_is_of_gpu(sample) for sample in found.samples):
        first = next(iter(found.unreadable), None)
        why = first["reason"] if first else "only comments and samples of other things"
        raise RefusedError(f"no sample of a GPU ({why}): pass what the exporter serves", first["line"] if first else None)
    return reading(name, found.samples, unreadable=found.unreadable)


def reading(
    name: str,
    samples: Sequence[Sample],
    *,
    unreadable: Sequence[Mapping[str, Any]] = (),
    timed: bool = False,
    scraped: bool = False,
) -> Reading:
    """Return the document.

    Parameters
    ----------
    name
        The format.
    samples
        In the order of the source.
    unreadable
        Lines that are no samples.
    timed
        Keep every time; else only the newest sample.
    scraped
        A Prometheus server stored them: ``pod`` may be the exporter's own, and only ``exported_pod`` is the user's.

    """
    of_gpus = [sample for sample in samples if _is_of_gpu(sample)]
    scraped = scraped or any("exported_pod" in sample.labels for sample in of_gpus)
    table = Table(timed=timed)
    cards: list[tuple[Sample, Card]] = []
    for sample in of_gpus:
        card = Card.of(sample.labels)
        cards.append((sample, card))
        table.add(sample, card, _user(sample.labels, scraped=scraped))
    findings = [
        *_lines(unreadable),
        *_foreign(len(samples) - len(of_gpus)),
        *table.findings(),
        *_identities(cards, with_nodes=not scraped),
        *_slices(cards),
        *_faults(cards),
        *_slots(cards),
    ]
    return Reading("metrics", name, table.body(unreadable), findings=tuple(findings))


def _is_of_gpu(sample: Sample) -> bool:
    if not _OF_ANOTHER.isdisjoint(sample.labels):
        return False
    return sample.name.startswith(_GPU_NAMES) or not _OF_A_GPU.isdisjoint(sample.labels)


def _user(labels: Mapping[str, str], *, scraped: bool) -> str | None:
    prefix = "exported_" if scraped else ""
    pod, namespace = labels.get(f"{prefix}pod"), labels.get(f"{prefix}namespace")
    return f"{namespace}/{pod}" if pod and namespace else None


def _lines(unreadable: Sequence[Mapping[str, Any]]) -> list[Finding]:
    if not unreadable:
        return []
    first = unreadable[0]
    what = f"lines that are no samples, dropped: {len(unreadable)}; the first is line {first['line']}: {first['reason']}"
    return [Finding("line-unreadable", what)]


def _foreign(count: int) -> list[Finding]:
    return [Finding("no-gpu-sample", f"samples that are not of a GPU, left out: {count}")] if count else []


def _identities(cards: Iterable[tuple[Sample, Card]], *, with_nodes: bool) -> list[Finding]:
    found: list[Finding] = []
    unknown = [sample for sample, card in cards if not card.is_known]
    if unknown:
        marks = {f"{k}={v!r}" for sample in unknown for k, v in sample.labels.items() if k in _IDENTITIES and is_placeholder(v)}
        why = f" ({some(sorted(marks))}: placeholders)" if marks else " (no UUID, serial number or PCI address)"
        found.append(
            Finding("no-identity", f"{len(unknown)} samples cannot be attributed to a card{why}: an index is no identity")
        )
    nodes: dict[str, dict[str, None]] = {}
    for _, card in cards:
        nodes.setdefault(card.uuid or "", {}).setdefault(card.node or "", None)
    moved = [f"{uuid} ({some(hosts)})" for uuid, hosts in nodes.items() if uuid and len(hosts) > 1 and all(hosts)]
    if moved:
        found.append(Finding("uuid-on-several-nodes", f"{some(moved)}: one UUID on more than one node"))
    if with_nodes and any("" in hosts for hosts in nodes.values()):
        found.append(
            Finding("no-hostname", "samples without a usable hostname label: their node must come from the scrape target")
        )
    pods = {card.node for _, card in cards if card.node and "-exporter-" in card.node}
    if pods:
        found.append(Finding("hostname-is-pod", f"{some(sorted(pods))}: Hostname is the exporter's pod, not the node"))
    return found


def _slices(cards: Iterable[tuple[Sample, Card]]) -> list[Finding]:
    instances: dict[str, dict[str, None]] = {}
    virtual: dict[str, str] = {}
    for sample, card in cards:
        if card.mig is not None:
            instances.setdefault(card.name, {})[card.mig] = None
        model = sample.labels.get("modelName", "")
        if model.startswith("GRID ") or _VGPU.fullmatch(model):
            virtual[card.name] = model
    found = [
        Finding("mig-split", f"{name} is split in {len(ids)} MIG instances ({some(ids)}): what it has no series for is unknown")
        for name, ids in instances.items()
    ]
    if virtual:
        what = f"{some(f'{name} ({model})' for name, model in virtual.items())}: a vGPU slice, not a whole GPU"
        found.append(Finding("vgpu-slice", what))
    return found


def _faults(cards: Iterable[tuple[Sample, Card]]) -> list[Finding]:
    """Report cards that say themselves that they are not well."""
    faults: dict[tuple[str, Card], dict[str, None]] = {}
    for sample, card in cards:
        if fault := _fault(sample):
            faults.setdefault((fault[0], card), {})[fault[1]] = None
    return [
        Finding(code, f"{card.name} on {card.node or 'an unknown node'}: {some(whats)}; its other values may be stale")
        for (code, card), whats in faults.items()
    ]


def _fault(sample: Sample) -> tuple[str, str] | None:
    value = number(sample.value)
    if value is None or blank_reason(sample.value, value):
        return None
    if value and _XID.fullmatch(sample.name):
        return "xid-error", f"Xid {sample.labels.get('xid') or sample.value}"
    if value and _REMAP.fullmatch(sample.name):
        return "row-remap-failure", "its memory could not remap a row"
    if value == 0 and sample.name.endswith(_HEALTH):
        return "gpu-unhealthy", "reports itself unhealthy"
    if value >= _DCGM_FAILED and sample.name == _DCGM_HEALTH:
        return "gpu-unhealthy", f"health watch {sample.labels.get('health_watch', '?')} has failed"
    return None


def _slots(cards: Iterable[tuple[Sample, Card]]) -> list[Finding]:
    """Report slots (machine and index) whose card changed its UUID."""
    slots: dict[tuple[str, str], dict[str, float]] = {}
    for sample, card in cards:
        host, index = card.node or sample.labels.get("instance"), sample.labels.get("gpu") or sample.labels.get("gpu_id")
        if host and index and card.uuid:
            first = slots.setdefault((host, index), {})
            first[card.uuid] = min(first.get(card.uuid, float("inf")), sample.time or 0)
    return [
        Finding(
            "uuid-changed",
            f"slot {host} gpu {index} changed UUID, card replaced: {' then '.join(sorted(first, key=first.__getitem__))}",
        )
        for (host, index), first in slots.items()
        if len(first) > 1
    ]
