"""ResourceSlices of Dynamic Resource Allocation: which GPUs there are, and which of them are split. They tell no links.

Several devices may be one card: the whole GPU, its MIG instances or partitions, its entry for passthrough. They are
joined by UUID, else by PCI address, and the card is whole only if nothing else of it can be allocated by itself.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from pyscheduler.readers.machine.dra_devices import Device, devices
from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text.json_text import json_or_refuse
from pyscheduler.readers.text.parts import MAX_DEVICES, fields, some

__all__ = ["FORMAT", "read", "recognises"]

FORMAT: Final = "dra"

_SPLIT: Final = "split"
_WHOLE: Final = "gpu"


def recognises(text: str) -> bool:
    """Tell whether `text` is JSON with ResourceSlices, or a part of one with its devices."""
    if text.lstrip("\ufeff \t\r\n")[:1] not in ("{", "["):
        return False
    if '"ResourceSlice"' in text or '"ResourceSliceList"' in text:
        return True
    return '"attributes"' in text and ('"devices"' in text or '"string"' in text)


def read(text: str) -> Reading:
    """Return the node document; GPUs of several nodes carry their host.

    Raises
    ------
    RefusedError
        If it is no JSON, or no slice in it has a GPU.

    """
    findings: list[Finding] = []
    found, complete = devices(json_or_refuse(text), findings)
    cards = _cards(found)
    if not cards:
        raise RefusedError("no GPU in it; use `kubectl get resourceslices -o json`")
    if len(cards) > _MAX_CARDS:
        raise RefusedError(f"more than {_MAX_CARDS} GPUs; give the slices of fewer nodes")
    gpus = [_gpu(card, findings) for card in cards]
    _make_unique(gpus, findings)
    body = {"gpus": gpus, "nics": [], "links": [], "nic_links": []}
    return Reading("node", FORMAT, body, complete, tuple(findings))


# A cluster's slices in one list: its nodes times the GPUs of a machine.
_MAX_CARDS: Final = 128 * MAX_DEVICES


def _cards(found: list[Device]) -> list[list[Device]]:
    """Return the devices of each physical card, in the order of the input."""
    uuid_at: dict[tuple[str | None, str | None], str] = {(d.host, d.pci): d.card for d in found if d.pci and d.card}
    name_at = {(d.host, d.name): d.card or d.pci or d.name for d in found if d.kind == _WHOLE}
    cards: dict[tuple[str | None, str], list[Device]] = {}
    for device in found:
        named = name_at.get((device.host, device.base), device.base)
        card = device.card or uuid_at.get((device.host, device.pci)) or device.pci or named
        cards.setdefault((device.host, card), []).append(device)
    return list(cards.values())


def _gpu(card: list[Device], findings: list[Finding]) -> dict[str, Any]:
    """Return the entry of one card, and say what is odd about it."""
    wholes = [d for d in card if d.kind == _WHOLE]
    # Instances that share counters with the whole card and have no UUID are what it can be split into, not what it is.
    splits = [d for d in card if d.kind == _SPLIT and (d.uuid or not d.possible)]
    first = next(iter(wholes or splits or card))
    gpu = fields(
        first.name if wholes else first.base,
        numa=_first(card, "numa"),
        uuid=_first(wholes, "uuid") or _first(card, "card"),
        pci=_first(card, "pci"),
        model=_first(card, "model"),
    )
    if first.host:
        gpu["host"] = first.host
    if splits:
        gpu["mig"] = [{"uuid": d.uuid, "profile": d.profile, "name": d.name} for d in splits]
    if splits or not wholes:
        gpu["whole"] = False
    if any(d.tainted for d in card):
        gpu["healthy"] = False
    findings += _oddities(gpu, card, wholes, splits)
    return gpu


def _first(card: list[Device], name: str) -> Any:
    return next((value for d in card if (value := getattr(d, name)) is not None), None)


def _oddities(gpu: dict[str, Any], card: list[Device], wholes: list[Device], splits: list[Device]) -> list[Finding]:
    name = gpu["id"]
    found = [*_split(name, wholes, splits), *_passthrough(name, card), *_repeated(name, card, wholes)]
    if gpu["uuid"] is None:
        place = gpu["pci"] or "(missing too)"
        found.append(
            Finding("uuid-missing", f"{name} has no uuid attribute: its identity is the node and the PCI address {place}")
        )
    tainted = next((d.tainted for d in card if d.tainted), "")
    if tainted:
        found.append(Finding("device-tainted", f"{name} has the taint {tainted}: it is not offered"))
    return found


def _split(name: str, wholes: list[Device], splits: list[Device]) -> list[Finding]:
    if wholes and splits:
        said = f"{name} is listed whole and as {_counted(splits)}: the same physical GPU; the whole one is not offered"
    else:
        said = f"{name} is split into {_counted(splits)} and is not offered whole"
    return [Finding("mig-split", said)] if splits else []


def _passthrough(name: str, card: list[Device]) -> list[Finding]:
    kinds = {d.kind for d in card}
    if "vfio" not in kinds:
        return []
    if kinds == {"vfio"}:
        return [Finding("vfio-only", f"{name} is listed for passthrough (vfio) only and is not offered")]
    return [Finding("vfio-duplicate", f"{name}: its vfio entry is the same physical GPU, not a further one")]


def _repeated(name: str, card: list[Device], wholes: list[Device]) -> list[Finding]:
    found = []
    if len(wholes) > 1:
        found.append(Finding("gpu-repeated", f"{name}: {some(d.name for d in wholes)} are the same physical GPU, counted once"))
    same = [other for other, times in Counter(d.name for d in card).items() if times > 1]
    if same:
        found.append(Finding("name-repeated", f"several devices are named {some(same)}"))
    return found


def _counted(splits: list[Device]) -> str:
    profiles = Counter(d.profile or "unknown profile" for d in splits)
    return "MIG or partition " + ", ".join(f"{times} x {profile}" for profile, times in profiles.items())


def _make_unique(gpus: list[dict[str, Any]], findings: list[Finding]) -> None:
    """Give GPUs of one host that share a name an id of their own."""
    seen: set[tuple[str | None, str]] = set()
    for gpu in gpus:
        host, name = gpu.get("host"), gpu["id"]
        if (host, name) in seen:
            gpu["id"] = f"{name}/{gpu['uuid'] or gpu['pci'] or len(seen)}"
            findings.append(Finding("name-repeated", f"two GPUs are named {name}; one of them is called {gpu['id']} here"))
        seen.add((host, gpu["id"]))
