"""Distance between two devices by where they hang in the PCIe tree."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Position", "path"]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a device hangs.

    Attributes
    ----------
    switches
        Keys of the PCIe switches or bridges above the device, the outermost first.
    host_bridge
        Key of the host bridge; None where the source does not show it.
    socket
        Key of the NUMA node or socket; None where it is not known.
    ports
        Bridges that one switch makes on the way to a device: 1 where the source shows the ports of a switch as bridges
        of their own, 0 where a switch is one element.
    """

    switches: tuple[int, ...]
    host_bridge: int | None
    socket: int | None
    ports: int = 0


def path(a: Position, b: Position) -> str:
    """Return PIX, PXB, PHB, NODE or SYS, as nvidia-smi defines them; SYS where the socket is not known."""
    shared = 0
    for x, y in zip(a.switches, b.switches, strict=False):
        if x != y:
            break
        shared += 1
    if shared:
        return "PIX" if max(len(a.switches), len(b.switches)) - shared <= a.ports else "PXB"
    if a.host_bridge is not None and a.host_bridge == b.host_bridge:
        return "PHB"
    return "NODE" if a.socket is not None and a.socket == b.socket else "SYS"
