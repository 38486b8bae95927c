"""`pyscheduler place`: where a job would go, on the live cluster or on a snapshot file. Nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer._click.core import ParameterSource

__all__ = ["place"]

Mode = Literal["best", "kruskal-naive", "first-fit", "random", "least-allocated", "most-allocated", "tightest-domain"]


def place(
    context: typer.Context,
    *,
    gpus: Annotated[int | None, typer.Option(metavar="K", help="GPUs of one pod.")] = None,
    pods: Annotated[int | None, typer.Option(metavar="N", help="Pods of a gang, with --gpus-per-pod.")] = None,
    gpus_per_pod: Annotated[int | None, typer.Option(metavar="G", help="GPUs of each pod of the gang.")] = None,
    one_pod_per_node: Annotated[bool, typer.Option("--one-pod-per-node", help="No two pods on one node.")] = False,
    required_level: Annotated[str | None, typer.Option(metavar="L", help="All pods in one domain of it, or not at all.")] = None,
    preferred_level: Annotated[str | None, typer.Option(metavar="L", help="Try this level first, then wider ones.")] = None,
    max_link: Annotated[str | None, typer.Option(metavar="TYPE", help="No pair of a pod's GPUs may be worse.")] = None,
    near_nic: Annotated[str | None, typer.Option(metavar="NIC", help="The set holds a GPU nearest to this NIC.")] = None,
    same_numa: Annotated[bool, typer.Option("--same-numa", help="All GPUs of a pod on one NUMA node.")] = False,
    same_model: Annotated[bool, typer.Option("--same-model", help="All GPUs of one model.")] = False,
    requests: Annotated[
        str | None, typer.Option(metavar="FILE", help="List of requests, JSON or YAML, each placed after the one before.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Snapshot, or what `kubectl get nodes,pods,configmaps -A -o json` prints; without it the live cluster.",
        ),
    ] = None,
    kubeconfig: Annotated[str | None, typer.Option(envvar="KUBECONFIG", help="Live cluster; default ~/.kube/config.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Configuration of the service: weights, and for Kubernetes objects resources and fabric.")
    ] = None,
    resource: Annotated[str | None, typer.Option(help="GPU resource, where Kubernetes nodes have several.")] = None,
    mode: Annotated[Mode, typer.Option(help="Another policy, to compare with.")] = "best",
    seed: Annotated[int, typer.Option(min=0, help="Of --mode random.")] = 0,
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="text draws the choice.")] = "text",
) -> None:
    """Show where a job would go: nodes, GPUs, the weakest link, predicted all-reduce bandwidth. Nothing is changed.

    Exit code 0: placed. 1: not feasible now. 2: the input cannot be used.
    """
    from pyscheduler.cli.place_run import Source, run

    flags = {
        "gpus": gpus,
        "pods": pods,
        "gpus_per_pod": gpus_per_pod,
        "one_pod_per_node": one_pod_per_node or None,
        "required_level": required_level,
        "preferred_level": preferred_level,
        "max_link": max_link,
        "near_nic": near_nic,
        "same_numa": same_numa or None,
        "same_model": same_model or None,
    }
    # A kubeconfig of the environment is none that was asked for: a file goes before it.
    asked = context.get_parameter_source("kubeconfig") is not ParameterSource.ENVIRONMENT
    source = Source(cluster, kubeconfig if asked or cluster is None else None, config, resource)
    given = {name: value for name, value in flags.items() if value is not None}
    if not run(source, given, requests, mode=mode, seed=seed, json_wanted=output == "json"):
        raise typer.Exit(1)
