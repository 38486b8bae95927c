"""The chaos run's watch: what it missed is read from the history that the server keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from deploy.local.chaos_watch import PODS, Follower, Snapshot
from deploy.local.errors import ApiError, LocalError

# All states of a collection by revision: UID to the revision at which the object was changed last.
History = list[dict[str, int]]


def _history(steps: list[tuple[str, str]]) -> History:
    states: History = [{}]
    for revision, (uid, step) in enumerate(steps, start=1):
        state = dict(states[-1])
        if step == "put":
            state[uid] = revision
        elif step == "delete":
            state.pop(uid, None)
        states.append(state)
    return states


def _item(uid: str, revision: int) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": str(revision)}}


def _snapshot(history: History, version: int) -> Snapshot:
    return Snapshot.of(version, [_item(uid, revision) for uid, revision in history[version].items()])


class FakeServer:
    """A server with a history; it closes a watch when it has told what it was asked for."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.kept = 0
        self.watched: list[tuple[str, Any] | LocalError] = []
        self.watched_from: list[str] = []
        self.reads = 0

    def read_all(self, path: str) -> tuple[list[Any], str]:
        version = len(self.history) - 1
        return list(_snapshot(self.history, version).items), str(version)

    def get(self, path: str, **query: str) -> Any:
        assert query["resourceVersionMatch"] == "Exact"
        version = int(query["resourceVersion"])
        self.reads += 1
        if version < self.kept:
            raise ApiError("GET", 410, "Expired", "too old")
        return {"items": list(_snapshot(self.history, version).items)}

    def watch(self, path: str, version: str, timeout_s: float) -> Iterator[tuple[str, Any]]:
        self.watched_from.append(version)
        for event in self.watched:
            if isinstance(event, LocalError):
                raise event
            yield event
        self.watched = []


class Told:
    def __init__(self, server: FakeServer) -> None:
        self.lists: list[tuple[int, int]] = []
        self.snapshots: list[Snapshot] = []
        self.changes: list[tuple[str, int]] = []
        self.follower = Follower(
            server,  # type: ignore[arg-type]
            PODS,
            lambda kind, item: self.changes.append((kind, int(item["metadata"]["resourceVersion"]))),
            self._take,
        )

    def _take(self, snapshot: Snapshot, last: int) -> None:
        self.lists.append((last, snapshot.version))
        self.snapshots.append(snapshot)


@pytest.fixture
def server() -> FakeServer:
    return FakeServer(_history([("a", "put"), ("b", "put")]))


def test_watch_goes_on_where_it_broke_without_reading_a_list(server: FakeServer) -> None:
    told = Told(server)
    server.watched = [("MODIFIED", _item("a", 3)), ("BOOKMARK", {"metadata": {"resourceVersion": "5"}})]
    assert told.follower.carry() is None
    server.watched = [("DELETED", _item("a", 6))]
    assert told.follower.carry() is None
    assert told.lists == [(0, 2)]
    assert server.watched_from == ["2", "5"]
    assert told.changes == [("MODIFIED", 3), ("DELETED", 6)]


GONE = ApiError("watch", 410, "Expired", "too old resource version")


def test_what_was_missed_is_told_state_by_state(server: FakeServer) -> None:
    told = Told(server)
    told.follower.carry()
    server.history = _history(
        [("a", "put"), ("b", "put"), ("a", "put"), ("-", "other"), ("c", "put"), ("c", "delete"), ("b", "delete")]
    )
    server.watched = [GONE]
    assert told.follower.carry() is None
    assert told.follower.carry() is True
    # What came and went meanwhile is among them. Each list says up to where all was known.
    assert told.lists == [(0, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)]
    assert [snapshot.states for snapshot in told.snapshots] == server.history[2:]


def test_nothing_missed_is_no_gap(server: FakeServer) -> None:
    told = Told(server)
    told.follower.carry()
    server.watched = [GONE]
    told.follower.carry()
    server.watched = []
    assert told.follower.carry() is None
    assert server.reads == 0


def test_history_that_the_server_has_forgotten_is_told_as_a_gap(server: FakeServer) -> None:
    told = Told(server)
    told.follower.carry()
    server.history = _history([("a", "put"), ("b", "put"), ("a", "put"), ("b", "delete"), ("c", "put")])
    server.kept = 5
    server.watched = [GONE]
    told.follower.carry()
    assert told.follower.carry() is False
    assert told.lists[-1] == (2, 5)


@pytest.mark.parametrize("failure", [LocalError("no answer"), ApiError("GET", 500, "InternalError", "etcd is away")])
def test_server_that_dies_meanwhile_is_asked_again(server: FakeServer, failure: LocalError) -> None:
    told = Told(server)
    told.follower.carry()
    server.history = _history([("a", "put"), ("b", "put"), ("a", "put"), ("b", "delete"), ("c", "put")])
    server.watched = [GONE]
    told.follower.carry()
    alive = server.get

    def dead(path: str, **_: str) -> Any:
        raise failure

    server.get = dead  # type: ignore[method-assign]
    with pytest.raises(LocalError):
        told.follower.carry()
    server.get = alive  # type: ignore[method-assign]
    assert told.follower.carry() is True
    assert [version for _, version in told.lists if version in {3, 4}] == [3, 4]
