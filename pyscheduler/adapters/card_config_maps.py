"""The memory of cards in ConfigMaps, one for each shard.

They are packed: all that watches ConfigMaps in the cluster is sent each one whenever it is written. Each says how to look
into it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from pyscheduler.adapters.api import ApiServer, Gone
from pyscheduler.errors import CardMemoryError, KubernetesError
from pyscheduler.readers.cards.memory_shards import SHARDS_MAX, Shards, shard_name

__all__ = ["LABEL", "CardConfigMaps"]

LABEL: Final = "pyscheduler.io/card-memory"
_KEY: Final = "cards.jsonl.gz"
_OURS: Final = {"app.kubernetes.io/managed-by": "pyscheduler", LABEL: "true"}
# What else bears the label is not ours to delete; nor are the rights to.
_NAMES: Final = [shard_name(index) for index in range(SHARDS_MAX)]
# Shards of a page of a list: 10 MiB at most.
_PAGE: Final = 10


class CardConfigMaps:
    """ConfigMaps of one namespace. One caller at a time."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        # What is known to be there, by name.
        self._there: dict[str, bytes] = {}

    def read(self) -> dict[str, bytes]:
        """Return all shards; one that cannot be read is empty.

        Raises
        ------
        KubernetesError
            If they cannot be listed.

        """
        found = {raw["metadata"]["name"]: _packed(raw) for raw in self._listed()}
        self._there = {name: found[name] for name in _NAMES if name in found}
        return dict(self._there)

    def write(self, shards: Shards) -> None:
        """Write those that have changed, then delete those that are not among them.

        Raises
        ------
        KubernetesError
            If the API server refuses one; the next call writes the rest.
        CardMemoryError
            If the name of one is somebody else's. All others are written.

        """
        foreign = []
        for name, packed in shards.items():
            if self._there.get(name) == packed:
                continue
            if self._write(name, packed):
                self._there[name] = packed
            else:
                foreign.append(name)
        for name in self._there.keys() - shards.keys():
            self._delete(name)
        if foreign:
            what = ", ".join(foreign)
            raise CardMemoryError(
                f"ConfigMap {what} in {self._namespace} was made by somebody else: rename it, or what is known of its cards is lost with this process"
            )

    def _listed(self) -> Iterator[Mapping[str, Any]]:
        query = {"labelSelector": LABEL, "limit": str(_PAGE)}
        while True:
            try:
                page = self._api.get(self._path, query)
            except Gone as cause:
                raise KubernetesError(f"the list of {self._path} ended between two pages ({cause}): try again") from None
            yield from page["items"]
            token = page["metadata"].get("continue")
            if not token:
                return
            query["continue"] = token

    def _write(self, name: str, packed: bytes) -> bool:
        """Write a shard. Tell whether its name is ours."""
        wanted = self._config_map(name, packed)
        try:
            if name in self._there:
                self._api.put(f"{self._path}/{name}", wanted)
                return True
        except KubernetesError as cause:
            if cause.status != HTTPStatus.NOT_FOUND:
                raise
        try:
            self._api.post(self._path, wanted)
        except KubernetesError as cause:
            if cause.status != HTTPStatus.CONFLICT:  # it is there already
                raise
            return self._replace(name, wanted)
        return True

    def _replace(self, name: str, wanted: Mapping[str, Any]) -> bool:
        """Write in place of the ConfigMap that is there, if it is ours: one that leads no more has made it."""
        meta = self._api.get(f"{self._path}/{name}")["metadata"]
        if LABEL not in (meta.get("labels") or {}):
            return False
        # With the version that was read: if somebody wrote it since, that is told, and tried again later.
        self._api.put(
            f"{self._path}/{name}", {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": meta["resourceVersion"]}}
        )
        return True

    def _delete(self, name: str) -> None:
        try:
            self._api.delete(f"{self._path}/{name}")
        except KubernetesError as cause:
            if cause.status != HTTPStatus.NOT_FOUND:
                raise
        del self._there[name]

    def _config_map(self, name: str, packed: bytes) -> dict[str, Any]:
        path = _KEY.replace(".", "\\.")
        look = f"kubectl get configmap -n {self._namespace} {name} -o jsonpath='{{.binaryData.{path}}}' | base64 -d | zcat\n"
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self._namespace, "labels": _OURS},
            "data": {"how-to-read": look},
            "binaryData": {_KEY: base64.b64encode(packed).decode()},
        }


def _packed(raw: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(raw["binaryData"][_KEY], validate=True)
    except (KeyError, TypeError, binascii.Error):
        return b""
