"""Pages of lists: what is left out must not be what counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyscheduler.readers.lists import pod_page
from pyscheduler.readers.objects import ObjectReader

READER = ObjectReader(("nvidia.com/gpu", "amd.com/gpu"))


def page(*pods: dict[str, Any], token: str = "") -> bytes:
    meta = {"resourceVersion": "7"} | ({"continue": token, "remainingItemCount": 3} if token else {})
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": pods}
    return json.dumps(body, separators=(",", ":")).encode()


def pod(name: str, **limits: str) -> dict[str, Any]:
    named = {key.replace("_", ".com/"): value for key, value in limits.items()}
    spec = {"containers": [{"name": "main", "resources": {"limits": named}}]}
    return {"metadata": {"uid": name, "name": name, "namespace": "ns"}, "spec": spec}


@pytest.mark.parametrize("token", ["", "eyJ2Ijoi=="])
def test_page_without_gpus_is_not_parsed_and_says_where_the_list_goes_on(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    load = json.loads

    def counted(text: bytes) -> Any:
        sizes.append(len(text))
        return load(text)

    monkeypatch.setattr(json, "loads", counted)
    text = page(*(pod(f"p{i}", cpu="1") for i in range(100)), token=token)
    found = pod_page(READER, text)
    assert (found.items, found.token, found.version, found.unread) == ([], token, "7", ())
    assert sum(sizes) < len(text) // 10


@pytest.mark.parametrize("resource", ["nvidia_gpu", "amd_gpu"])
def test_one_pod_with_gpus_among_many_without_is_found(resource: str) -> None:
    text = page(*(pod(f"p{i}", cpu="1") for i in range(50)), pod("gpu", **{resource: "2"}))
    assert [found.name for found in pod_page(READER, text).items] == ["gpu"]


@pytest.mark.parametrize("text", [b"{}", b"[]", b'{"kind":"PodList","apiVersion":"v1","metadata":{}}', b"<html>"])
def test_what_is_no_list_is_no_empty_list(text: bytes) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        pod_page(READER, text)


def test_list_that_is_cut_off_is_none_though_its_beginning_is_whole() -> None:
    with pytest.raises(ValueError):
        pod_page(READER, page(pod("p1", cpu="1"))[:-40])
