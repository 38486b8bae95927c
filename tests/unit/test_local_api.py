"""The API client against a server that a test plays."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from deploy.local.api import Api, in_parallel
from deploy.local.errors import ApiError, LocalError, NeverHappenedError

PODS = "/api/v1/pods"


class Script:
    """What the server answers, first to last: lists (dict) and watches (list of events); what it was asked."""

    def __init__(self) -> None:
        self.lists: list[dict[str, Any]] = []
        self.watches: list[list[dict[str, Any]]] = []
        self.refusal: tuple[int, str] | None = None
        self.asked: list[dict[str, str]] = []
        self.bodies: list[tuple[str, dict[str, Any]]] = []


class Handler(BaseHTTPRequestHandler):
    script: Script

    def do_GET(self) -> None:
        query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        self.script.asked.append({**query, "authorization": self.headers["Authorization"]})
        if self.script.refusal:
            self._answer(*self.script.refusal)
        elif "watch" in query:
            events = self.script.watches.pop(0) if self.script.watches else []
            self._answer(200, "".join(json.dumps(event) + "\n" for event in events))
        else:
            lists = self.script.lists
            self._answer(200, json.dumps(lists.pop(0) if len(lists) > 1 else lists[0]))

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.script.bodies.append((self.headers["Content-Type"], body))
        self._answer(200, "{}")

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def api(script: Script, tmp_path: Path) -> Iterator[Api]:
    handler = type("ScriptedHandler", (Handler,), {"script": script})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Api(kubeconfig(tmp_path, server.server_port))
        server.shutdown()
        thread.join()


def kubeconfig(folder: Path, port: int) -> Path:
    document = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def pod(name: str, version: int, phase: str = "Pending") -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "status": {"phase": phase}}


def page(version: int, *items: dict[str, Any], more: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)}


def event(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": item}


GONE = event("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})


def test_list_is_read_page_by_page(api: Api, script: Script) -> None:
    script.lists = [page(7, pod("a", 1), more="next"), page(7, pod("b", 2))]
    items, version = api.read_all(PODS)
    assert ([item["metadata"]["name"] for item in items], version) == (["a", "b"], "7")
    assert script.asked[1]["continue"] == "next"
    assert script.asked[0]["authorization"] == "Bearer secret"


def test_watch_goes_on_where_it_broke_off(api: Api, script: Script) -> None:
    script.lists = [page(7)]
    script.watches = [[event("ADDED", pod("a", 8)), event("BOOKMARK", pod("", 20))], [event("DELETED", pod("a", 21))]]
    kinds = [kind for kind, _ in islice(api.follow(PODS), 3)]
    assert kinds == ["LIST", "ADDED", "DELETED"]
    assert [asked["resourceVersion"] for asked in script.asked if "watch" in asked] == ["7", "20"]


def test_missed_changes_make_it_list_again(api: Api, script: Script) -> None:
    script.lists = [page(7, pod("a", 1)), page(30, pod("b", 29))]
    script.watches = [[GONE]]
    events = list(islice(api.follow(PODS), 2))
    assert [kind for kind, _ in events] == ["LIST", "LIST"]
    assert events[1][1]["items"] == [pod("b", 29)]


def test_other_errors_of_a_watch_are_raised(api: Api, script: Script) -> None:
    script.lists = [page(7)]
    script.watches = [[event("ERROR", {"code": 500, "reason": "InternalError", "message": "etcd is away"})]]
    with pytest.raises(ApiError, match="500 InternalError: etcd is away"):
        list(api.follow(PODS))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"reason": "Forbidden", "message": "no"}', "GET /api/v1/pods: 403 Forbidden: no"),
        ("plain words", "GET /api/v1/pods: 403 Forbidden: plain words"),
        ("[]", "GET /api/v1/pods: 403 Forbidden: \\[\\]"),
    ],
)
def test_refusal_tells_request_status_and_reason(api: Api, script: Script, text: str, message: str) -> None:
    script.refusal = (403, text)
    with pytest.raises(ApiError, match=message) as refusal:
        api.get(PODS)
    assert refusal.value.status == 403


def test_server_that_is_away_is_told(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"GET /version: http://127\.0\.0\.1:1 does not answer"):
        Api(kubeconfig(tmp_path, 1)).get("/version")


def test_condition_that_is_met_already_is_not_waited_for(api: Api, script: Script) -> None:
    script.lists = [page(7, pod("a", 1, "Running"))]
    found = api.wait_for(PODS, lambda item: item["status"]["phase"] == "Running", name="a")
    assert found["metadata"]["name"] == "a"
    assert [asked.get("fieldSelector") for asked in script.asked] == ["metadata.name=a"]


def test_condition_is_waited_for(api: Api, script: Script) -> None:
    script.lists = [page(7, pod("a", 1))]
    script.watches = [[event("MODIFIED", pod("a", 8)), event("MODIFIED", pod("a", 9, "Running"))]]
    assert api.wait_for(PODS, lambda item: item["status"]["phase"] == "Running")["metadata"]["resourceVersion"] == "9"


def test_condition_that_never_comes_tells_what_was_there(api: Api, script: Script) -> None:
    script.lists = [page(7, pod("a", 1))]
    with pytest.raises(NeverHappenedError, match=r"/api/v1/pods a: .* within 0.2 s; last: .*Pending"):
        api.wait_for(PODS, lambda item: item["status"]["phase"] == "Running", name="a", timeout_s=0.2)


def test_wait_for_the_end_of_an_object(api: Api, script: Script) -> None:
    script.lists = [page(7, pod("a", 1))]
    script.watches = [[event("DELETED", pod("a", 8))]]
    api.wait_gone(PODS, "a")
    script.lists = [page(9)]
    api.wait_gone(PODS, "a")
    script.lists = [page(7, pod("a", 1))]
    with pytest.raises(NeverHappenedError, match="was still there"):
        api.wait_gone(PODS, "a", timeout_s=0.2)


def test_status_patch_merges_conditions_and_names_the_object(api: Api, script: Script) -> None:
    api.patch_status(f"{PODS}/a", {"phase": "Running"}, uid="u1")
    api.patch(f"{PODS}/a", {"metadata": {}})
    assert script.bodies == [
        ("application/strategic-merge-patch+json", {"status": {"phase": "Running"}, "metadata": {"uid": "u1"}}),
        ("application/merge-patch+json", {"metadata": {}}),
    ]


def test_calls_in_parallel_reach_every_item() -> None:
    done: list[int] = []
    in_parallel(done.append, range(100))
    assert sorted(done) == list(range(100))


def test_error_of_one_call_in_parallel_is_raised() -> None:
    def call(number: int) -> None:
        if number == 3:
            raise LocalError("the third")

    with pytest.raises(LocalError, match="the third"):
        in_parallel(call, range(8))
