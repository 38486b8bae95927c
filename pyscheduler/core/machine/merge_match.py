"""Which GPUs and NICs of several views of one machine are the same.

GPUs by UUID, else by PCI address; one document that has both ties those that have one of them. By their id only where a
document has nothing else, its ids are those of the others, and these number their GPUs alike. Nothing is matched by position.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyscheduler.core.machine.document import Gpu, Nic, NodeDocument
from pyscheduler.errors import PyschedulerError

__all__ = ["MergeError", "gpu_places", "nic_keys"]

_REMEDY = "add output that has UUIDs and PCI addresses, such as that of nvidia-smi -q -x"

Named = Sequence[tuple[str, NodeDocument]]


class MergeError(PyschedulerError):
    """The documents are not of one machine, or nothing tells which of their GPUs are the same."""


def gpu_places(named: Named) -> list[tuple[int, ...]]:
    """Return, for each document and each of its GPUs, which GPU of all it is; those of earlier documents come first.

    Raises
    ------
    MergeError
        If a document has no GPU in common with the others, or it is not certain which ones.

    """
    keys = _gpu_keys(named)
    order: dict[str, int] = {}
    places = [tuple(order.setdefault(key, len(order)) for key in of_one) for of_one in keys]
    for (name, _), of_one in zip(named, keys, strict=True):
        if twice := [key for key in of_one if of_one.count(key) > 1]:
            raise MergeError(f"{name} lists {twice[0]} twice: correct it, or leave it out")
    _refuse_strangers(named, places)
    _refuse_same_ids(named, places)
    return places


def nic_keys(named: Named) -> list[tuple[str, ...]]:
    """Return, for each document and each of its NICs, what it is known by: the same in all that have it.

    NICs are known by name, else by PCI address, else, among documents that have neither, by id.
    """
    names_at: dict[str, set[str]] = {}
    for _, document in named:
        for nic in document.nics:
            if nic.name and nic.pci:
                names_at.setdefault(nic.pci, set()).add(nic.name)
    found = []
    for _, document in named:
        keys = [_nic_key(nic, names_at) for nic in document.nics]
        # Two ports may share an address.
        alone = [keys.count(key) == 1 for key in keys]
        named_so = zip(document.nics, keys, alone, strict=True)
        found.append(tuple(key if single else f"{key} id {nic.id}" for nic, key, single in named_so))
    return found


def _nic_key(nic: Nic, names_at: dict[str, set[str]]) -> str:
    if nic.name:
        return f"name {nic.name}"
    if nic.pci:
        names = names_at.get(nic.pci, set())
        return f"name {next(iter(names))}" if len(names) == 1 else f"pci {nic.pci}"
    return f"id {nic.id}"


def _gpu_keys(named: Named) -> list[list[str]]:
    uuid_at = _uuid_at(named)
    identities = [[_identity(gpu, uuid_at) for gpu in document.gpus] for _, document in named]
    by_id = _by_id(named, identities) if any(None in of_one for of_one in identities) else {}
    return [
        [known or by_id.get(gpu.id) or gpu.id for gpu, known in zip(document.gpus, of_one, strict=True)]
        for (_, document), of_one in zip(named, identities, strict=True)
    ]


def _uuid_at(named: Named) -> dict[str, str]:
    """Return the UUID of the GPU at each PCI address, where a document has both."""
    found: dict[str, tuple[str, str]] = {}
    for name, document in named:
        for gpu in document.gpus:
            if gpu.uuid and gpu.pci:
                uuid, other = found.setdefault(gpu.pci, (gpu.uuid, name))
                if uuid != gpu.uuid:
                    raise MergeError(
                        f"at {gpu.pci} is {uuid} in {other} and {gpu.uuid} in {name}: leave out that of another machine or time"
                    )
    return {pci: uuid for pci, (uuid, _) in found.items()}


def _identity(gpu: Gpu, uuid_at: dict[str, str]) -> str | None:
    return gpu.uuid or (uuid_at.get(gpu.pci, gpu.pci) if gpu.pci else None)


def _by_id(named: Named, identities: Sequence[Sequence[str | None]]) -> dict[str, str]:
    """Return the identity behind each id, where a document knows GPUs by their id only."""
    lacking = next(name for (name, _), of_one in zip(named, identities, strict=True) if None in of_one)
    found: dict[str, tuple[str, str]] = {}
    for (name, document), of_one in zip(named, identities, strict=True):
        for gpu, known in zip(document.gpus, of_one, strict=True):
            if known and found.setdefault(gpu.id, (known, name))[0] != known:
                identity, other = found[gpu.id]
                raise MergeError(
                    f"{gpu.id} is {identity} in {other} and {known} in {name}, and {lacking} has nothing but such ids: {_REMEDY}"
                )
    _refuse_other_ids(named, identities)
    return {name: known for name, (known, _) in found.items()}


def _refuse_other_ids(named: Named, identities: Sequence[Sequence[str | None]]) -> None:
    """Refuse a document that knows GPUs by id only, if its ids are not those of the others: it may show a part of them."""
    leading = [at for at, of_one in enumerate(identities) if any(of_one)] or [0]
    expected = {gpu.id for at in leading for gpu in named[at][1].gpus}
    for (name, document), of_one in zip(named, identities, strict=True):
        ids = {gpu.id for gpu in document.gpus}
        if None in of_one and ids != expected:
            odd = min(ids ^ expected, key=lambda text: (len(text), text))
            raise MergeError(
                f"{name} has {len(ids)} GPUs known by id only, {named[leading[0]][0]} has {len(expected)},"
                f" and {odd} is not in both: nothing tells which are the same; {_REMEDY}"
            )


def _refuse_strangers(named: Named, places: Sequence[tuple[int, ...]]) -> None:
    joined = set(places[0])
    left = dict(enumerate(places[1:], start=1))
    while near := [at for at, of_one in left.items() if joined & set(of_one)]:
        for at in near:
            joined |= set(left.pop(at))
    if left:
        raise MergeError(
            f"{named[min(left)][0]} has no GPU in common with {named[0][0]}: it is of another machine, or names GPUs by other"
            f" means; {_REMEDY}"
        )


def _refuse_same_ids(named: Named, places: Sequence[tuple[int, ...]]) -> None:
    """Refuse two GPUs of one id: the earliest document that has a GPU gives it its id."""
    ids: dict[int, tuple[Gpu, str]] = {}
    for (name, document), of_one in zip(named, places, strict=True):
        for gpu, place in zip(document.gpus, of_one, strict=True):
            ids.setdefault(place, (gpu, name))
    seen: dict[str, tuple[Gpu, str]] = {}
    for gpu, name in ids.values():
        other, where = seen.setdefault(gpu.id, (gpu, name))
        if other is not gpu:
            said = f"{gpu.id} is {other.uuid or other.pci} in {where} and {gpu.uuid or gpu.pci} in {name}"
            raise MergeError(f"{said}, and neither lists both: leave out that of another machine or time")
