"""`pyscheduler doctor`: why metrics of cards do not come, or do not match the nodes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pyscheduler.cli.input_text import InputError
from pyscheduler.core.findings import Finding, Severity

if TYPE_CHECKING:
    from pyscheduler.cli.doctor_facts import Fleet
    from pyscheduler.config import Config

__all__ = ["doctor"]


def doctor(
    config: Annotated[Path | None, typer.Option(help="Configuration of the service: metrics, resources, fabric.")] = None,
    url: Annotated[str | None, typer.Option(help="Prometheus, in place of metrics.url.")] = None,
    kubeconfig: Annotated[
        str | None, typer.Option(envvar="KUBECONFIG", help="Cluster whose nodes count; default ~/.kube/config.")
    ] = None,
    nodes: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="What `kubectl get nodes -o json` prints, in place of a cluster.")
    ] = None,
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="json lists every finding.")] = "text",
) -> None:
    """Find out why metrics of cards do not come or do not match the nodes, and say what to do. Nothing is changed.

    Run it where the service runs: addresses, certificates and tokens are its own there.

    Exit code 0: nothing but notes. 1: something needs doing. 2: the input cannot be used.
    """
    from pyscheduler.config import Config

    loaded = _with_url(Config.load(config), url)
    fleet = _fleet(loaded, kubeconfig, nodes)
    findings = _found(loaded, fleet)
    if output == "json":
        typer.echo(json.dumps(_document(findings, fleet), ensure_ascii=True))
    else:
        from pyscheduler.cli.topology_lint_text import show

        show(findings, nodes=len(fleet.gpu_nodes), gpus=_gpus(fleet))
    if any(finding.severity is not Severity.NOTE for finding in findings):
        raise typer.Exit(1)


def _with_url(config: Config, url: str | None) -> Config:
    from pyscheduler.readers.metrics_config import metrics_config

    if url is not None:
        read, problems = metrics_config({"url": url})
        if problems:
            raise InputError(f"--url: {problems[0].removeprefix('metrics.url: ')}")
        config = replace(config, metrics=replace(config.metrics, url=read.url))
    if config.metrics.url is None:
        raise InputError("no Prometheus to ask: set metrics.url in the file of --config, or pass --url")
    return config


def _fleet(config: Config, kubeconfig: str | None, files: list[str] | None) -> Fleet:
    """Return the nodes of the files, or of the cluster."""
    from pyscheduler.cli.doctor_facts import fleet_of

    if files:
        from pyscheduler.cli.cluster_files import cluster_of

        objects = cluster_of(files)
    else:
        from pyscheduler.adapters.survey import survey
        from pyscheduler.cli.live_cluster import api_of

        objects = survey(api_of(kubeconfig, config), config)
    records, _ = objects.records(config.reader(), config.fabric, config.weights, time.time())
    return fleet_of(records)


def _found(config: Config, fleet: Fleet) -> list[Finding]:
    from pyscheduler.adapters.prometheus_errors import PrometheusError
    from pyscheduler.cli.doctor_checks import check
    from pyscheduler.cli.doctor_questions import ask

    try:
        answers = ask(config.metrics, config.capacity.faults.harmless_xids, fleet.known_as, time.time())
    except PrometheusError as cause:
        return [Finding("prometheus", str(cause), severity=Severity.ERROR)]
    return check(answers, fleet, config.capacity)


def _document(findings: list[Finding], fleet: Fleet) -> dict[str, Any]:
    keys = ("code", "severity", "node", "message", "remedy")
    listed = [{key: getattr(finding, key) for key in keys} for finding in findings]
    return {"version": 1, "kind": "doctor", "nodes": len(fleet.gpu_nodes), "gpus": _gpus(fleet), "findings": listed}


def _gpus(fleet: Fleet) -> int:
    from pyscheduler.core.lint import gpus

    return sum(map(gpus, fleet.gpu_nodes.values()))
