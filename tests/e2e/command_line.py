"""The command line of the embedded control plane, run as a person does."""

from __future__ import annotations

import subprocess
import sys

from deploy.local.layout import REPOSITORY


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m deploy.local`` to its end."""
    line = [sys.executable, "-m", "deploy.local", *arguments]
    return subprocess.run(line, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120)
