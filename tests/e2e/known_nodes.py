"""What a running service knows of nodes, by its Inspect calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from pyscheduler.edge.pb.v1 import inspect_pb2, inspect_pb2_grpc

Condition = Callable[[inspect_pb2.Node], bool]


def shown(socket: Path, name: str) -> inspect_pb2.Node | None:
    """Return what a service knows of a node."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        answer = inspect_pb2_grpc.InspectStub(channel).ListNodes(inspect_pb2.ListNodesRequest(name=name), timeout=10)
    return answer.nodes[0] if answer.nodes else None


def until(condition: Callable[[], Any], what: str, timeout_s: float = 60.0, every_s: float = 0.05) -> Any:
    """Ask again and again, until what is asked is true; return it. For what tells nobody that it has changed."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not in {timeout_s:g} s"
        time.sleep(every_s)
    return value


def wait_known(socket: Path, name: str, condition: Condition) -> inspect_pb2.Node:
    """Wait until what a service knows of a node meets a condition."""
    seen: list[inspect_pb2.Node | None] = []

    def meets() -> bool:
        seen[:] = [shown(socket, name)]
        return seen[0] is not None and seen[0].present and condition(seen[0])

    until(meets, f"node {name}")
    assert seen[0] is not None
    return seen[0]
