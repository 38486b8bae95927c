"""Devices of ResourceSlices, of all API versions, whole objects or parts of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyscheduler.readers.reading import Finding
from pyscheduler.readers.text.parts import address, node_index, some

__all__ = ["Device", "devices"]

# Values of the attribute "type" of the NVIDIA and AMD drivers.
_KINDS: Final = {"gpu": "gpu", "amdgpu": "gpu", "mig": "split", "amdgpu-partition": "split", "vfio": "vfio"}
_DRIVERS: Final = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com")
_PCI: Final = ("pciBusID", "pciAddr", "pciAddress", "pciBusId")
_NUMA: Final = ("numaNode", "numa", "numaNodeID")
_INSTANCE: Final = re.compile(r"(.+?)-mig-.*")
_EFFECTS: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Device:
    """One allocatable device of a card.

    Attributes
    ----------
    kind
        gpu (whole), split (MIG instance or partition) or vfio.
    card
        UUID of the physical card, None if it is not known.
    base
        Name of the card, as far as the device's name tells it.
    possible
        Shares counters with others: allocating one rules out others.
    tainted
        Key of a taint that keeps pods away; empty if there is none.
    """

    name: str
    kind: str
    host: str | None
    uuid: str | None
    card: str | None
    pci: str | None
    numa: int | None
    model: str | None
    profile: str | None
    possible: bool
    tainted: str

    @property
    def base(self) -> str:
        """What slices and the whole card have in common: the card that they are of."""
        instance = _INSTANCE.fullmatch(self.name)
        return instance[1] if instance else self.card or self.pci or self.name


def devices(raw: Any, findings: list[Finding]) -> tuple[list[Device], bool]:
    """Return the GPU devices of the newest generation of each pool, and whether all slices of each pool are there."""
    specs = [spec for spec in _specs(raw) if isinstance(spec.get("devices"), list)]
    current, complete = _current(specs, findings)
    found: list[Device] = []
    for spec in current:
        for entry in spec["devices"]:
            device = _device(entry, spec, findings)
            if device:
                found.append(device)
    return found, complete and not any(f.code == "device-unreadable" for f in findings)


def _specs(raw: Any) -> Iterator[dict[str, Any]]:
    """Yield the spec of each slice. A list of slices, a slice, its spec alone and its devices alone are all in use."""
    stack = [raw]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            bare = bool(item) and all(isinstance(e, dict) and "attributes" in e for e in item)
            stack += [{"devices": item}] if bare else reversed(item)
        elif isinstance(item, dict):
            if isinstance(item.get("items"), list):
                stack += reversed(item["items"])
            elif "attributes" in item:
                yield {"devices": [item]}
            elif item.get("kind", "ResourceSlice") == "ResourceSlice":
                spec = item.get("spec", item)
                yield spec if isinstance(spec, dict) else {}


def _pool(spec: dict[str, Any]) -> dict[str, Any]:
    pool = spec.get("pool")
    return pool if isinstance(pool, dict) else {}


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _current(specs: list[dict[str, Any]], findings: list[Finding]) -> tuple[list[dict[str, Any]], bool]:
    """Return the specs of the newest generation of each pool: older ones are being replaced and count no more."""
    newest: dict[tuple[str, str], int] = {}
    for spec in specs:
        newest[_key(spec)] = max(newest.get(_key(spec), 0), _number(_pool(spec).get("generation")))
    current = [s for s in specs if _number(_pool(s).get("generation")) == newest[_key(s)]]
    old = sorted({_key(s)[1] for s in specs if _number(_pool(s).get("generation")) < newest[_key(s)]})
    if old:
        findings.append(Finding("slice-outdated", f"slices of an older generation are left out, pool {some(old)}"))
    return current, not _lacking(current, findings)


def _key(spec: dict[str, Any]) -> tuple[str, str]:
    return str(spec.get("driver", "")), str(_pool(spec).get("name", ""))


def _lacking(specs: list[dict[str, Any]], findings: list[Finding]) -> list[str]:
    there: dict[tuple[str, str], int] = {}
    for spec in specs:
        there[_key(spec)] = there.get(_key(spec), 0) + 1
    lacking = sorted({_key(s)[1] for s in specs if there[_key(s)] < _number(_pool(s).get("resourceSliceCount"))})
    if lacking:
        findings.append(Finding("slice-missing", f"fewer slices than the pool has, so GPUs may be missing: pool {some(lacking)}"))
    return lacking


def _device(entry: Any, spec: dict[str, Any], findings: list[Finding]) -> Device | None:
    """Return the device, None if it is no GPU."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        findings.append(Finding("device-unreadable", "a device without a name is left out"))
        return None
    basic = entry.get("basic")
    body = basic if isinstance(basic, dict) else entry
    said = _attributes(body.get("attributes"))
    kind = _kind(said, str(spec.get("driver", "")))
    if kind is None:
        return None
    uuid, parent = _text(said, "uuid"), _text(said, "parentUUID")
    host = body.get("nodeName") or spec.get("nodeName")
    return Device(
        name=entry["name"],
        kind=kind,
        host=host if isinstance(host, str) else None,
        uuid=uuid,
        card=parent if kind == "split" else uuid,
        pci=_address(entry["name"], said, findings),
        numa=next((n for key in _NUMA if (n := node_index(said.get(key))) is not None), None),
        model=_text(said, "productName") or _text(said, "model"),
        profile=_text(said, "profile") or _text(said, "partitionProfile") or _text(said, "computePartition"),
        possible=bool(body.get("consumesCounters")),
        tainted=_taint(body.get("taints")),
    )


def _attributes(raw: Any) -> dict[str, Any]:
    """Return the values by bare name: ``resource.kubernetes.io/pciBusID: {string: ...}`` is ``pciBusID``."""
    if not isinstance(raw, dict):
        return {}
    return {key.rpartition("/")[2]: next(iter(value.values())) for key, value in raw.items() if isinstance(value, dict) and value}


def _text(said: dict[str, Any], key: str) -> str | None:
    value = said.get(key)
    return value if isinstance(value, str) and value else None


def _kind(said: dict[str, Any], driver: str) -> str | None:
    if "type" in said:
        return _KINDS.get(str(said["type"]))
    uuid = str(said.get("uuid", ""))
    if uuid.startswith("MIG-"):
        return "split"
    return "gpu" if uuid.startswith("GPU-") or driver in _DRIVERS else None


def _taint(taints: Any) -> str:
    keys = (
        str(t.get("key", "unnamed"))
        for t in (taints if isinstance(taints, list) else ())
        if isinstance(t, dict) and t.get("effect") in _EFFECTS
    )
    return next(keys, "")


def _address(name: str, said: dict[str, Any], findings: list[Finding]) -> str | None:
    value = next((said[key] for key in _PCI if key in said), None)
    if isinstance(value, float):
        value = _from_sexagesimal(value)
    pci = address(value)
    if value is not None and pci is None:
        findings.append(Finding("pci-unreadable", f"device {name}: {value!r} is no PCI address"))
    return pci


def _from_sexagesimal(number: float) -> str:
    """Return the address that YAML 1.1 took for a number: ``0000:37:00.0`` without quotes is 37 times 60."""
    tenths = round(number * 10)
    domain, bus, device, function = tenths // 36_000, tenths // 600 % 60, tenths // 10 % 60, tenths % 10
    return f"{domain:04d}:{bus:02d}:{device:02d}.{function}"
