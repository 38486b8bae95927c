"""`pyscheduler topology lint`: checks a whole cluster, live or from files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.lint import gpus
from pyscheduler.core.lint import lint as check
from pyscheduler.core.record import NodeRecord

if TYPE_CHECKING:
    from pyscheduler.config import Config
    from pyscheduler.readers.cluster_objects import ClusterObjects

__all__ = ["lint"]


def lint(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Node objects, ConfigMaps of classes, HyperNodes, Topologies; JSON or YAML; - is standard input.",
        ),
    ] = None,
    kubeconfig: Annotated[
        str | None, typer.Option(envvar="KUBECONFIG", help="Cluster to read if there is no FILE; default ~/.kube/config.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration of the service: resources and fabric.")] = None,
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="json lists every finding.")] = "text",
) -> None:
    """Check labels and documents of all nodes of a cluster, and say what to do.

    Exit code 0: nothing but notes. 1: errors or warnings. 2: the input cannot be used.
    """
    from pyscheduler.cli.cluster_files import cluster_of
    from pyscheduler.config import Config

    loaded = Config.load(config)
    objects = cluster_of(files) if files else _live(kubeconfig, loaded)
    records, beside = objects.records(loaded.reader(), loaded.fabric, loaded.weights, time.time())
    findings = check(records, beside)
    if output == "json":
        typer.echo(json.dumps(_document(records, findings), ensure_ascii=True))
    else:
        from pyscheduler.cli.topology_lint_text import show

        show(findings, nodes=len(records), gpus=sum(map(gpus, records)))
    if any(finding.severity is not Severity.NOTE for finding in findings):
        raise typer.Exit(1)


def _document(records: Sequence[NodeRecord], findings: Iterable[Finding]) -> dict[str, Any]:
    keys = ("code", "severity", "node", "message", "remedy")
    listed = [{key: getattr(finding, key) for key in keys} for finding in findings]
    return {"version": 1, "kind": "lint", "nodes": len(records), "gpus": sum(map(gpus, records)), "findings": listed}


def _live(kubeconfig: str | None, config: Config) -> ClusterObjects:
    """Return what describes the cluster of the kubeconfig."""
    from pyscheduler.adapters.survey import survey
    from pyscheduler.cli.live_cluster import api_of

    return survey(api_of(kubeconfig, config), config)
