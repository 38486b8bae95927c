"""The API server that a command reads."""

from __future__ import annotations

from pyscheduler.adapters import api
from pyscheduler.cli.input_text import InputError
from pyscheduler.config import Config
from pyscheduler.errors import KubernetesError

__all__ = ["api_of"]


def api_of(kubeconfig: str | None, config: Config) -> api.ApiServer:
    """Return the API server of a kubeconfig: the one that is named, that of the configuration, or kubectl's usual one.

    Raises
    ------
    InputError
        If there is none of them, and this is no pod that has an account.
    KubernetesError
        If it cannot be used.

    """
    named = api.usual_kubeconfig(kubeconfig, config.kubeconfig)
    try:
        return api.ApiServer(named)
    except KubernetesError:
        if named:
            raise
        raise InputError(
            "no cluster to read: name a kubeconfig with --kubeconfig or KUBECONFIG (~/.kube/config is not there), or pass a file"
        ) from None
