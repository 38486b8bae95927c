"""Namespaces for runs that must not see each other."""

from __future__ import annotations

from typing import Final

from deploy.local.api import Api

_NAMESPACES: Final = "/api/v1/namespaces"


def create(api: Api, name: str) -> None:
    """Create a namespace and wait until pods can be created in it: until it has its service account."""
    api.create(_NAMESPACES, {"metadata": {"name": name}})
    api.wait_for(f"{_NAMESPACES}/{name}/serviceaccounts", lambda _: True, name="default")


def delete(api: Api, name: str) -> None:
    """Delete a namespace; what is in it goes soon after."""
    api.delete(f"{_NAMESPACES}/{name}")
