"""The device manager of one simulated node: which pod holds which GPU. Pure: time is an argument.

Invariant: a GPU is held by one pod at most, and from a pod's admission until its release.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Self

GPUS: Final = "pyscheduler.io/gpus"

Containers = Mapping[str, tuple[str, ...]]

_INDEX: Final = "index:"
_INSTRUCTIONS: Final = ("ready", "gpus", "refusePods", "releaseSeconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """How a node should misbehave: the annotation pyscheduler.io/simulate on the Node, JSON.

    Attributes
    ----------
    gpus
        ``gpus``: it has only its first so many GPUs; None: all.
    refuse_pods
        ``refusePods``: it refuses pods with GPUs.
    release_s
        ``releaseSeconds``: how long it holds the devices of an ended pod; None: as all nodes do.

    ``{"ready": false}`` is kwok's to play.

    """

    gpus: int | None = None
    refuse_pods: bool = False
    release_s: float | None = None

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """Read the annotation.

        Raises
        ------
        ValueError
            If it is no JSON object, has an unknown key, or a value is not of its kind.

        """
        values = json.loads(text) if text else {}
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 - the content is wrong, not an argument
        if unknown := sorted(values.keys() - _INSTRUCTIONS):
            raise ValueError(f"unknown {', '.join(unknown)}; known are {', '.join(_INSTRUCTIONS)}")
        gpus, release_s = values.get("gpus"), values.get("releaseSeconds")
        if gpus is not None and int(gpus) < 0:
            raise ValueError(f"gpus is {gpus}, and must be 0 or more")
        return cls(
            gpus=None if gpus is None else int(gpus),
            refuse_pods=bool(values.get("refusePods", False)),
            release_s=None if release_s is None else float(release_s),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPod:
    """A pod that asks for GPUs.

    Attributes
    ----------
    uid
        UID of the pod.
    steady
        GPUs of each container that runs as long as the pod: the app containers and the sidecars.
    init
        GPUs of each container that ends before those start; they use the same devices.
    chosen
        Value of the annotation pyscheduler.io/gpus; None if the pod was placed by a scheduler that names none.

    """

    uid: str
    steady: Mapping[str, int]
    init: Mapping[str, int]
    chosen: str | None

    @classmethod
    def of(cls, pod: Mapping[str, Any], resource: str) -> Self | None:
        """Return what a Pod object asks of a resource; None if nothing."""
        spec = pod["spec"]
        first = spec.get("initContainers", [])
        sidecars = [container for container in first if container.get("restartPolicy") == "Always"]
        init = [container for container in first if container.get("restartPolicy") != "Always"]
        steady = _requests([*spec["containers"], *sidecars], resource)
        initial = _requests(init, resource)
        if not steady and not initial:
            return None
        annotations = pod["metadata"].get("annotations") or {}
        return cls(uid=pod["metadata"]["uid"], steady=steady, init=initial, chosen=annotations.get(GPUS))

    @property
    def gpus(self) -> int:
        """Number of devices that it holds."""
        return max(sum(self.steady.values()), *self.init.values(), 0)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node does not take a pod, as the kubelet puts it into the pod's status."""

    message: str


@dataclass(slots=True)
class DeviceManager:
    """Devices of one node.

    Attributes
    ----------
    uuids
        All GPUs of the machine, by index.
    instructions
        How the node misbehaves.
    held
        Devices of each container of each pod, by UID; pods that have ended stay until their release.

    """

    uuids: tuple[str, ...]
    instructions: Instructions = field(default_factory=Instructions)
    held: dict[str, Containers] = field(default_factory=dict)
    _release_at_s: dict[str, float] = field(default_factory=dict)

    @property
    def present(self) -> tuple[str, ...]:
        """GPUs that the node has now."""
        return self.uuids[: self.instructions.gpus]

    @property
    def free(self) -> tuple[str, ...]:
        """GPUs that could be handed out, by index."""
        busy = {uuid for containers in self.held.values() for uuids in containers.values() for uuid in uuids}
        return tuple(uuid for uuid in self.present if uuid not in busy)

    def admit(self, pod: GpuPod) -> Refusal | None:
        """Give a pod the devices that its annotation names or, without one, the first free ones.

        A refusal changes nothing; nor does a pod that was admitted before.
        """
        if pod.uid in self.held:
            return None
        if self.instructions.refuse_pods:
            return Refusal("Pod was rejected: the node was told to refuse pods that ask for GPUs")
        containers = self._chosen(pod, pod.chosen) if pod.chosen is not None else self._first_free(pod)
        if isinstance(containers, Refusal):
            return containers
        self.held[pod.uid] = containers
        return None

    def end(self, uid: str, now_s: float, delay_s: float) -> float | None:
        """Note that a pod has ended; return when its devices will be free, None if it holds none or it is known."""
        if uid not in self.held or uid in self._release_at_s:
            return None
        delay_s = delay_s if self.instructions.release_s is None else self.instructions.release_s
        self._release_at_s[uid] = now_s + delay_s
        return now_s + delay_s

    def release(self, now_s: float) -> bool:
        """Free the devices whose time has come; return whether there were any."""
        due = [uid for uid, at_s in self._release_at_s.items() if at_s <= now_s]
        for uid in due:
            del self._release_at_s[uid], self.held[uid]
        return bool(due)

    def _chosen(self, pod: GpuPod, annotation: str) -> Containers | Refusal:
        try:
            containers = _parse_chosen(annotation, self.uuids)
        except ValueError as error:
            return Refusal(f"Pod was rejected: annotation {GPUS} cannot be used ({error})")
        asked = {**pod.steady, **pod.init}
        named = {name: len(uuids) for name, uuids in containers.items()}
        if named != asked:
            return Refusal(f"Pod was rejected: annotation {GPUS} names {named} devices, the containers ask for {asked}")
        missing = sorted({uuid for uuids in containers.values() for uuid in uuids}.difference(self.free))
        if missing:
            return Refusal(f"Pod was rejected: devices that {GPUS} names are not free: {', '.join(missing)}")
        return containers

    def _first_free(self, pod: GpuPod) -> Containers | Refusal:
        free = self.free
        if pod.gpus > len(free):
            return Refusal(
                "Pod was rejected: Allocate failed due to requested number of devices unavailable. "
                f"Requested: {pod.gpus}, Available: {len(free)}, which is unexpected"
            )
        rest = iter(free)
        steady = {name: tuple(islice(rest, count)) for name, count in pod.steady.items()}
        return {**steady, **{name: free[:count] for name, count in pod.init.items()}}


def _requests(containers: list[Mapping[str, Any]], resource: str) -> dict[str, int]:
    # An extended resource's limit is its request.
    limits = {each["name"]: int(each.get("resources", {}).get("limits", {}).get(resource, 0)) for each in containers}
    return {name: count for name, count in limits.items() if count}


def _parse_chosen(annotation: str, uuids: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    document = json.loads(annotation)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - the content is wrong, not an argument
    return {name: tuple(_uuid(device, uuids) for device in devices) for name, devices in document.items() if devices}


def _uuid(device: object, uuids: tuple[str, ...]) -> str:
    text = str(device)
    if not text.startswith(_INDEX):
        return text
    index = int(text.removeprefix(_INDEX))
    if not 0 <= index < len(uuids):
        raise ValueError(f"{text}: the node has {len(uuids)} GPUs")
    return uuids[index]
