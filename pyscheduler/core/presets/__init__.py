"""Node documents of common machines, for nodes that have none of their own: assumed, and marked as such by their source.

The label ``pyscheduler.io/preset`` names one; without it the product label and the number of GPUs may (`for_product`).
"""

from __future__ import annotations

from functools import lru_cache

from pyscheduler.core.machine.document import Gpu, NodeDocument
from pyscheduler.core.presets.machines import MACHINES
from pyscheduler.core.presets.products import for_product
from pyscheduler.errors import PyschedulerError

__all__ = ["UnknownPresetError", "document", "for_product", "names"]


class UnknownPresetError(PyschedulerError):
    """No preset has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"preset {name!r} is not known; use one of {', '.join(names())}")
        self.name = name


def names() -> tuple[str, ...]:
    """Return the names of all presets."""
    return tuple(MACHINES)


# More products than one cluster has; the documents are shared by all nodes of a kind.
@lru_cache(maxsize=256)
def document(name: str, product: str | None = None) -> NodeDocument:
    """Return the node document of a preset, the same object for the same arguments.

    Its source is ``preset:NAME``. UUIDs and bus ids are unknown, and so is what differs between machines of the kind.

    Parameters
    ----------
    name
        One of `names`.
    product
        Product label of the node: becomes the model of its GPUs. Without it, the model is what the cards of all such
        machines have in common in their name; None if any card may be in them.

    Raises
    ------
    UnknownPresetError
        If there is no such preset.

    """
    machine = MACHINES.get(name)
    if machine is None:
        raise UnknownPresetError(name)
    model = product or machine.model
    return NodeDocument(
        gpus=tuple(Gpu(f"GPU{at}", model=model, numa=node) for at, node in enumerate(machine.numa)),
        nics=machine.nics,
        links=machine.links,
        nic_links=machine.nic_links,
        source=f"preset:{name}",
    )
