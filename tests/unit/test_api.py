"""The API server's address and credentials: what cannot be used is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyscheduler.adapters.api import ApiServer, usual_kubeconfig
from pyscheduler.errors import KubernetesError


@pytest.mark.parametrize("content", ["garbage: [", "clusters: 5", "- a", "\xff", "server: 5", ""])
def test_kubeconfig_of_another_form_is_one_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(KubernetesError) as caught:
        ApiServer(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_first_named_kubeconfig_counts_then_the_usual_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert usual_kubeconfig(None, "b", "c") == "b"
    assert usual_kubeconfig(None, "") is None
    usual = tmp_path / ".kube" / "config"
    usual.parent.mkdir()
    usual.touch()
    assert usual_kubeconfig(None) == str(usual)
