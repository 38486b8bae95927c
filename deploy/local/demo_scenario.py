"""What the demo plays: nodes in two racks, some half full, and the pods that come, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deploy.local.layout import REPOSITORY

DEMO_ROOT: Final = REPOSITORY / ".build" / "demo"

NVIDIA: Final = "nvidia.com/gpu"
AMD: Final = "amd.com/gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """A node of the demo.

    Attributes
    ----------
    name
        Name of the node; that of its twin follows from it.
    title
        What people call the machine.
    machine
        One of `machines.NAMES`.
    rack
        Its fabric domain.
    taken
        GPUs that others hold before the demo begins.

    """

    name: str
    title: str
    machine: str
    rack: str
    taken: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """What a user asks for.

    Attributes
    ----------
    name
        Name of the pod or, with several completions, of the indexed Job.
    gpus
        GPUs of each pod.
    machine
        Machine whose product label the node selector names; None: any.
    resource
        Extended resource that is asked for.
    completions
        Pods of the Job; 0: a pod without one.

    """

    name: str
    gpus: int
    machine: str | None = None
    resource: str = NVIDIA
    completions: int = 0

    @property
    def instances(self) -> tuple[str, ...]:
        """What its pods are called here: a Job's pods by their index."""
        return tuple(f"{self.name}-{index}" for index in range(self.completions)) or (self.name,)


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod that must stay Pending, and words that its Event must hold."""

    pod: PodPlan
    says: str


NODES: Final = (
    NodePlan(name="dgx1v-1", title="DGX-1V", machine="dgx-1v", rack="rack-a", taken=(1, 2, 3)),
    NodePlan(name="dgx1v-2", title="DGX-1V", machine="dgx-1v", rack="rack-a", taken=(1, 2, 3, 7)),
    NodePlan(name="dgx1v-3", title="DGX-1V", machine="dgx-1v", rack="rack-a", taken=(1, 3, 6, 7)),
    NodePlan(name="bridged-1", title="4x A100 PCIe, two bridges", machine="a100-pcie-bridged", rack="rack-a", taken=(0,)),
    NodePlan(name="h100-1", title="HGX H100", machine="hgx-h100", rack="rack-b"),
    NodePlan(name="a100-1", title="HGX A100", machine="hgx-a100", rack="rack-b", taken=(2,)),
    NodePlan(name="rtx4090-1", title="8x RTX 4090, two sockets", machine="rtx-4090x8", rack="rack-b", taken=(1, 2)),
    NodePlan(name="mi250x-1", title="4x MI250X, eight dies", machine="mi250x", rack="rack-b", taken=(0, 4)),
)

PODS: Final = (
    PodPlan(name="pretrain", gpus=8),
    PodPlan(name="finetune", gpus=4),
    PodPlan(name="eval", gpus=3),
    PodPlan(name="v100-train", gpus=4, machine="dgx-1v"),
    PodPlan(name="v100-pair", gpus=2, machine="dgx-1v"),
    PodPlan(name="sweep", gpus=2, machine="dgx-1v", completions=2),
    PodPlan(name="lora", gpus=2, machine="a100-pcie-bridged"),
    PodPlan(name="render", gpus=4, machine="rtx-4090x8"),
    PodPlan(name="amd-train", gpus=2, resource=AMD),
    PodPlan(name="notebook", gpus=1),
)

# It comes before the others: the plugin refuses a pod only once it knows every node of the service, so that from then
# on no choice is made among fewer.
TOO_LARGE: Final = Refused(PodPlan(name="nine-gpus", gpus=9), says="ask for at most 8 per pod")
# It comes when the others hold their GPUs.
TOO_LATE: Final = Refused(PodPlan(name="late-pretrain", gpus=8), says="the nearest fit is")
