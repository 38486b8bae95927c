"""The admission policies in deploy/policy, on a control plane."""

from __future__ import annotations

import time
from typing import Final

import yaml

from deploy.local.api import Api, Object
from deploy.local.devices import GPUS
from deploy.local.errors import ApiError, NeverHappenedError
from deploy.local.layout import REPOSITORY

POLICIES: Final = REPOSITORY / "deploy" / "policy"

_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
_COLLECTIONS: Final = {
    "ValidatingAdmissionPolicy": f"{_GROUP}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_GROUP}/validatingadmissionpolicybindings",
}
# A pod that the policies deny. It is never made: the server is asked what it would do.
_FORGED: Final = {
    "metadata": {"name": "forged", "annotations": {GPUS: "{}"}},
    "spec": {"containers": [{"name": "main", "image": "pause"}]},
}
_DRY_RUN: Final = "/api/v1/namespaces/default/pods?dryRun=All"
_DENIED: Final = "ValidatingAdmissionPolicy"
_POLL_S: Final = 0.05


def enforce(api: Api, timeout_s: float = 30.0) -> None:
    """Create the policies and wait until they are in force: the API server takes up to about a second.

    Raises
    ------
    NeverHappenedError
        If they are not in time.

    """
    for manifest in _manifests():
        api.create(_COLLECTIONS[manifest["kind"]], manifest)
    _await(api, timeout_s, denies=True)


def lift(api: Api, timeout_s: float = 30.0) -> None:
    """Delete the policies and wait until they are no longer in force; raises as `enforce`."""
    for manifest in reversed(_manifests()):
        api.delete(f"{_COLLECTIONS[manifest['kind']]}/{manifest['metadata']['name']}")
    _await(api, timeout_s, denies=False)


def _manifests() -> list[Object]:
    return [manifest for file in sorted(POLICIES.glob("*.yaml")) for manifest in yaml.safe_load_all(file.read_text())]


def _await(api: Api, timeout_s: float, *, denies: bool) -> None:
    deadline = time.monotonic() + timeout_s
    # The server has no way to tell when it has taken up a policy.
    while _denies(api) is not denies:
        if time.monotonic() > deadline:
            state = "in force" if denies else "lifted"
            raise NeverHappenedError(f"the admission policies in {POLICIES} were not {state} after {timeout_s:g} s")
        time.sleep(_POLL_S)


def _denies(api: Api) -> bool | None:
    """Return whether the policies deny a forged pod; None if the server refuses it for another reason."""
    try:
        api.create(_DRY_RUN, _FORGED)
    except ApiError as error:
        return True if _DENIED in str(error) else None
    return False
