"""The machines of the simulated nodes, and pods that ask for their GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from deploy.local import machines
from pyscheduler.core.model import ContainerKind, ContainerRequest, Machine
from tests import builders

__all__ = ["FLEET", "GPU", "REQUESTS", "Hardware", "Request", "machine_of", "shares_fault"]

GPU: Final = builders.GPU
FOUR, EIGHT = "a100-pcie-bridged", "dgx-1v"

# Node to its kind of machine, and whether it has a document from the start.
FLEET: Final = {"a": (FOUR, True), "b": (EIGHT, True), "c": (FOUR, False), "d": (FOUR, True)}


@dataclass(frozen=True)
class Hardware:
    """A machine: its kind, and the name that its UUIDs follow from."""

    kind: str
    serial: str

    @property
    def gpus(self) -> tuple[str, ...]:
        return _uuids(self.kind, self.serial)


@lru_cache(maxsize=1 << 10)
def _uuids(kind: str, serial: str) -> tuple[str, ...]:
    return tuple(gpu["uuid"] for gpu in machines.document(kind, serial)["gpus"])


@lru_cache(maxsize=1 << 12)
def machine_of(hardware: Hardware, sick: frozenset[int]) -> Machine:
    return builders.machine(hardware.kind, hardware.serial, sick=tuple(sorted(sick)))


@dataclass(frozen=True)
class Request:
    """What a pod's containers ask for, and how many GPUs they hold at their peak, worked out by hand."""

    containers: tuple[ContainerRequest, ...]
    peak: int


def _request(peak: int, **containers: tuple[str, int]) -> Request:
    return Request(
        tuple(ContainerRequest(name, ContainerKind(kind), GPU, gpus) for name, (kind, gpus) in containers.items()), peak
    )


# Small ones first.
REQUESTS: Final = (
    _request(1, main=("app", 1)),
    _request(1, early=("init", 1), main=("app", 1)),
    _request(2, main=("app", 2)),
    _request(2, early=("init", 1), main=("app", 2)),
    _request(2, early=("init", 2), beside=("sidecar", 1), main=("app", 1)),
    _request(3, early=("init", 3), main=("app", 1)),
    _request(3, beside=("sidecar", 1), early=("init", 2), main=("app", 1)),
    _request(3, first=("app", 1), second=("app", 2)),
    _request(4, early=("init", 1), beside=("sidecar", 2), late=("init", 1), main=("app", 2)),
    _request(4, main=("app", 4)),
)


def shares_fault(request: Request, shares: dict[str, tuple[str, ...]]) -> str:
    """Return what is wrong with who gets which GPUs, empty if nothing is: found by going through the life of the pod."""
    if {c.name: c.gpus for c in request.containers} != {name: len(share) for name, share in shares.items()}:
        return "a container has another number of GPUs than it asks for"
    running: list[str] = []
    for kinds in ((ContainerKind.INIT, ContainerKind.SIDECAR), (ContainerKind.APP,)):
        for container in (c for c in request.containers if c.kind in kinds):
            together = [*running, *shares[container.name]]
            if len(set(together)) < len(together):
                return f"{container.name} has a GPU that another one of the pod's running containers has"
            if container.kind is not ContainerKind.INIT:
                running = together
    named = {gpu for share in shares.values() for gpu in share}
    return "" if len(named) == request.peak else "more GPUs are named than are needed at the peak"
