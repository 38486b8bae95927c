"""What must never be, as the recorder of the chaos run tells it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Kinds of violations."""

    GPU_TWICE = "one GPU in two live pods"
    MOVED = "bound to another node than before"
    UNBOUND = "bound, and then to no node"
    RENAMED = "other GPUs than at its binding"
    UNNAMED = "bound without naming its GPUs"
    WRONG_COUNT = "another number of GPUs than it asks for"
    NO_SUCH_GPU = "a GPU that the node has not"
    IN_USE = "a GPU that the node still held for another pod"
    PARKED = "waits though there is room"
    NOT_RUN = "bound, and never run"
    LOST = "gone without a trace"
    NOT_DONE = "a Job that does not complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One violation.

    Attributes
    ----------
    kind
        What must not be.
    at_s
        When it was seen, seconds since the run began.
    pods
        Names of the pods, the later one last.
    node
        Where; empty if nowhere.
    gpus
        GPUs that it is about.
    detail
        What else there is to know, in words.

    """

    kind: Kind
    at_s: float
    pods: tuple[str, ...]
    node: str = ""
    gpus: tuple[str, ...] = ()
    detail: str = ""

    def __str__(self) -> str:
        parts = [f"{self.at_s:.1f} s: {self.kind}: {_and(self.pods)}"]
        parts += [f"on {self.node}"] if self.node else []
        parts += [f"GPUs {_and(self.gpus)}"] if self.gpus else []
        return " ".join(parts) + (f" ({self.detail})" if self.detail else "")


def _and(names: Iterable[str]) -> str:
    return ", ".join(names)
