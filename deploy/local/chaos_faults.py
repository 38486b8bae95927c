"""Which processes the chaos run kills or stops, and when. The plan is pure: a seed gives the same one each time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from typing import Final

import yaml

from deploy.local import components
from deploy.local.control_plane import ControlPlane
from deploy.local.probes import https
from deploy.local.processes import wait_ready

# In the order in which they can be started: each needs those before it.
VICTIMS: Final = (components.ETCD, components.API_SERVER, components.SERVICE, components.SCHEDULER)

_KILLED_S: Final = (0.0, 2.0)
_STOPPED_S: Final = (1.0, 5.0)
_CALM_S: Final = (1.0, 4.0)
_READY_S: Final = 60.0


class Deed(StrEnum):
    """What is done to a process."""

    KILL = "kill -9"
    STOP = "SIGSTOP"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes
    ----------
    deed
        What is done.
    victims
        To which components, at once.
    down_s
        Seconds until they are started again, or go on.
    calm_s
        Seconds without a fault after the next binding.

    """

    deed: Deed
    victims: tuple[str, ...]
    down_s: float
    calm_s: float

    def __str__(self) -> str:
        return f"{self.deed} {' + '.join(self.victims)}"


def plan(seed: int) -> Iterator[Fault]:
    """Yield faults without end, in rounds: each does both deeds to every component once, and to two of them at once."""
    draw = random.Random(f"{seed}/faults")  # noqa: S311 - a plan that can be repeated is the point
    while True:
        deeds: list[tuple[Deed, tuple[str, ...]]] = [(deed, (victim,)) for deed in Deed for victim in VICTIMS]
        deeds += [(deed, draw.choice(list(combinations(VICTIMS, 2)))) for deed in Deed]
        draw.shuffle(deeds)
        for deed, victims in deeds:
            down_s = draw.uniform(*(_KILLED_S if deed is Deed.KILL else _STOPPED_S))
            yield Fault(deed, victims, round(down_s, 2), round(draw.uniform(*_CALM_S), 2))


def inject(plane: ControlPlane, fault: Fault, meanwhile: Callable[[], None]) -> None:
    """Let a fault happen, do something meanwhile; return when all processes are ready again or, if they were stopped, go on.

    Raises
    ------
    ComponentFailedError
        If one does not become ready.

    """
    if fault.deed is Deed.STOP:
        with ExitStack() as frozen:
            for name in fault.victims:
                frozen.enter_context(plane.frozen_component(name))
            meanwhile()
            time.sleep(fault.down_s)
        return
    for name in fault.victims:
        plane.kill_component(name)
    meanwhile()
    time.sleep(fault.down_s)
    for name in VICTIMS:
        if name in fault.victims:
            plane.start_component(name)
    # etcd says at once that it is ready: the file of its socket has outlived it. And nobody but the API server asks it.
    if components.ETCD in fault.victims:
        await_api(plane)


def await_api(plane: ControlPlane) -> None:
    """Wait until the API server says that it, and etcd behind it, are ready."""
    cluster = yaml.safe_load(plane.kubeconfig.read_text())["clusters"][0]["cluster"]
    port = int(cluster["server"].rpartition(":")[2])
    probe = https(port, "/readyz", Path(cluster["certificate-authority"]))
    wait_ready(plane.process(components.API_SERVER), probe, plane.layout.log(components.API_SERVER), _READY_S)
