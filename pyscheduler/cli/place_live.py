"""The live cluster as a scene to place on: read once, never written."""

from __future__ import annotations

from typing import Final

from pyscheduler.adapters.api import ApiServer, Gone
from pyscheduler.adapters.survey import PAGE, survey
from pyscheduler.cli.live_cluster import api_of
from pyscheduler.cli.place_objects import scene_of, unread_pod
from pyscheduler.cli.place_scene import Scene
from pyscheduler.config import Config
from pyscheduler.core.findings import Finding
from pyscheduler.core.model import PodFacts
from pyscheduler.errors import KubernetesError
from pyscheduler.readers.lists import pod_page

__all__ = ["live"]

_PODS: Final = "/api/v1/pods"
# Terminal pods hold nothing.
_LIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"


def live(kubeconfig: str | None, config: Config, resource: str | None) -> Scene:
    """Return the cluster of the kubeconfig as it is now, as `place_objects.scene_of`.

    Raises
    ------
    InputError
        If there is no kubeconfig, or as `place_objects.scene_of`.
    KubernetesError
        If the API server refuses or is away.

    """
    api = api_of(kubeconfig, config)
    objects = survey(api, config)
    pods, unread = _pods(api, config)
    return scene_of(objects, pods, unread, config, resource)


def _pods(api: ApiServer, config: Config) -> tuple[list[PodFacts], list[Finding]]:
    """Return the pods that hold or want GPUs, and those that cannot be read."""
    reader = config.reader()
    query = {"fieldSelector": _LIVE, "limit": str(PAGE)}
    pods: list[PodFacts] = []
    unread: list[Finding] = []
    while True:
        try:
            page = pod_page(reader, api.get_bytes(_PODS, query))
        except Gone as cause:
            raise KubernetesError(f"the list of {_PODS} ended between two pages ({cause}): try again") from None
        pods += page.items
        unread += map(unread_pod, page.unread)
        if not page.token:
            return pods, unread
        query["continue"] = page.token
