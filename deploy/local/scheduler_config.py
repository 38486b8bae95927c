"""The configuration of kube-scheduler, for each way of running it.

Beside: a binary with only the profile gpu-topology next to the cluster's own scheduler.
Replace: one binary with the untouched default-scheduler and gpu-topology.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

DEFAULT_PROFILE: Final = "default-scheduler"
GPU_PROFILE: Final = "gpu-topology"
PLUGIN: Final = "GPUTopology"

# One step of our score outweighs all in-tree plugins together (weights of 12 in default_plugins.go of Kubernetes 1.37,
# scores up to 100): they only break ties.
_WEIGHT: Final = 10_000
# The client's default of 50 requests per second, not the scheduler, would be the limit.
_QPS: Final = 5000
# A plugin that is named at a point as well as under multiPoint comes first there. Bind: ours stands before
# DefaultBinder, which ends the chain. Filter: a look-up, cheaper than any other. PostFilter: before preemption.
_FIRST_AT: Final = ("filter", "postFilter", "bind")


@dataclass(frozen=True, slots=True)
class Election:
    """How one of several schedulers is elected: who holds the Lease of this namespace and name leads.

    The times are short, so that tests need not wait; Kubernetes's own are 15, 10 and 2 s.
    """

    lease: str
    namespace: str = "kube-system"
    lease_s: int = 6
    renew_s: int = 4
    retry_s: int = 1


class Profiles(StrEnum):
    """Which profiles a scheduler serves."""

    DEFAULT_ONLY = "default-only"
    GPU_ONLY = "gpu-only"
    BOTH = "both"


def document(profiles: Profiles, kubeconfig: Path, socket: Path, election: Election | None = None) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration.

    Parameters
    ----------
    profiles
        Which profiles it holds.
    kubeconfig
        How the scheduler reaches the API server.
    socket
        Unix socket of the Python service.
    election
        How it is elected; None if it is the only one.

    """
    default = {"schedulerName": DEFAULT_PROFILE}
    chosen = {
        Profiles.DEFAULT_ONLY: [default],
        Profiles.GPU_ONLY: [_gpu_profile(socket)],
        Profiles.BOTH: [default, _gpu_profile(socket)],
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": _QPS, "burst": _QPS},
        "leaderElection": _leader_election(election),
        "profiles": chosen[profiles],
    }


def _leader_election(election: Election | None) -> dict[str, Any]:
    if election is None:
        return {"leaderElect": False}
    return {
        "leaderElect": True,
        "resourceNamespace": election.namespace,
        "resourceName": election.lease,
        "leaseDuration": f"{election.lease_s}s",
        "renewDeadline": f"{election.renew_s}s",
        "retryPeriod": f"{election.retry_s}s",
    }


def _gpu_profile(socket: Path) -> dict[str, Any]:
    points = {point: {"enabled": [{"name": PLUGIN}]} for point in _FIRST_AT}
    return {
        "schedulerName": GPU_PROFILE,
        "plugins": {
            # Ours does what DefaultPreemption does, which would evict pods whose GPUs do not help.
            "multiPoint": {"enabled": [{"name": PLUGIN, "weight": _WEIGHT}], "disabled": [{"name": "DefaultPreemption"}]},
            **points,
        },
        "pluginConfig": [{"name": PLUGIN, "args": {"endpoint": f"unix://{socket}"}}],
    }
