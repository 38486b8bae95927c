"""Fixtures of the end-to-end tests: a real control plane with simulated GPU nodes, and a workspace for each test.

The variable PYSCHEDULER_E2E_MODE of the environment says how the profile gpu-topology is run: replace (default),
beside or default-only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.control_plane import ControlPlane, Mode, Options
from deploy.local.workspace import Workspace

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane for all tests; a test that stops one of its components starts it again."""
    mode = Mode(os.environ.get("PYSCHEDULER_E2E_MODE", Mode.REPLACE))
    with ControlPlane.start(Options(root=tmp_path_factory.mktemp("plane"), mode=mode)) as plane:
        yield plane
        plane.check()


@pytest.fixture
def workspace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Workspace]:
    """A namespace and nodes of the test's own; nothing may have crashed when it ends."""
    title = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")
    with Workspace(control_plane.api, title) as own:
        yield own
    control_plane.check()
