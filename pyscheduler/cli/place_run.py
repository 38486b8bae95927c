"""A call of `pyscheduler place`: files and flags to answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import typer

from pyscheduler.cli.input_text import YAML_LIMIT_CHARS, InputError, as_json, decode, read_bytes
from pyscheduler.cli.place_answer import document, listed
from pyscheduler.cli.place_beside import beside
from pyscheduler.cli.place_scene import Scene, of_snapshot
from pyscheduler.cli.place_text import show
from pyscheduler.config import Config
from pyscheduler.core.baselines import baseline
from pyscheduler.core.job import Job, Selection
from pyscheduler.readers.reading import RefusedError
from pyscheduler.readers.requests import job_of, jobs_of
from pyscheduler.readers.snapshot import of_json
from pyscheduler.readers.text.json_text import json_or_none, json_or_refuse

__all__ = ["Source", "run"]

T = TypeVar("T")

# A cluster of 100,000 GPUs is some 20 MiB.
_LIMIT_BYTES: Final = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """Where the cluster is read: a file, or live by the kubeconfig. The configuration says how it is read."""

    file: str | None = None
    kubeconfig: str | None = None
    config: Path | None = None
    resource: str | None = None


def run(source: Source, given: Mapping[str, Any], requests: str | None, *, mode: str, seed: int, json_wanted: bool) -> bool:
    """Print the answers. Return whether what was asked by flags is placed; with a file of requests, true.

    Parameters
    ----------
    source
        Where the cluster is read.
    given
        Fields of one request that were given as flags.
    requests
        File of requests instead.
    mode, seed
        By which policy.
    json_wanted
        JSON instead of a drawing.

    Raises
    ------
    InputError
        If the input cannot be used.
    KubernetesError
        If the live cluster cannot be read.

    """
    _refuse_mixtures(source, given, requests)
    scene = _scene(source)
    if mode != "best":
        scene = replace(scene, policy=baseline(mode, seed))
    jobs = [replace(job, resource=scene.resource) for job in _jobs(requests, given, scene)]
    answers = []
    for number, job in enumerate(jobs):
        result = scene.decide(job)
        answer = document(scene, result, alone=requests is None)
        if isinstance(result, Selection):
            # Of a list of requests nobody reads it as JSON.
            answer |= beside(scene, job, result) if requests is None or not json_wanted else {}
            scene.commit(job, result, number)
        answers.append(answer)
    if json_wanted:
        several = {"results": answers, "warnings": listed(scene.findings)}
        typer.echo(json.dumps(answers[0] if requests is None else several, ensure_ascii=True))
    else:
        show(jobs, answers)
    return requests is not None or bool(answers[0]["feasible"])


def _refuse_mixtures(source: Source, given: Mapping[str, Any], requests: str | None) -> None:
    if requests is None and not given.keys() & {"gpus", "pods", "gpus_per_pod"}:
        raise InputError("place: say what is asked: --gpus K, or --pods N --gpus-per-pod G, or --requests FILE")
    if requests is not None and given:
        raise InputError(f"place: --requests says what is asked, leave out {_flag(next(iter(given)))}")
    if requests == source.file == "-":
        raise InputError("place: --requests and --cluster cannot both be standard input")


def _jobs(requests: str | None, given: Mapping[str, Any], scene: Scene) -> tuple[Job, ...]:
    if requests is None:
        return _used("place", lambda: (job_of(given, scene.levels, _flag, scene.nics()),))
    return _used(requests, lambda: jobs_of(_loaded(requests), scene.levels, scene.nics()))


def _scene(source: Source) -> Scene:
    config = Config.load(source.config)
    if source.file is None:
        from pyscheduler.cli.place_live import live

        return live(source.kubeconfig, config, source.resource)
    file = source.file
    if source.kubeconfig is not None:
        raise InputError("place: --cluster names a file and --kubeconfig a live cluster, leave out one of the two")
    raw = _used(file, lambda: _loaded(file))
    if _holds_objects(raw):
        from pyscheduler.cli.place_objects import of_file

        return of_file(file, raw, config, source.resource)
    if source.resource is not None:
        raise InputError(f"place: a snapshot has one GPU resource, leave out --resource: {file} is one")
    return of_snapshot(_used(file, lambda: of_json(raw, config.weights)), config.weights)


def _holds_objects(raw: Any) -> bool:
    """Tell whether these are objects of Kubernetes and no snapshot."""
    several = raw if isinstance(raw, list) else [raw]
    return any(isinstance(each, dict) and "nodes" not in each and ("items" in each or "metadata" in each) for each in several)


def _used(file: str, read: Callable[[], T]) -> T:
    """Return what is read of a file; a refusal names it."""
    try:
        return read()
    except (RefusedError, RecursionError) as failure:
        reason = failure if isinstance(failure, RefusedError) else "nested too deeply to be used"
        raise InputError(f"{file}: {reason}") from None


def _loaded(file: str) -> Any:
    """Return the JSON or YAML of a file."""
    text = decode(read_bytes(file, _LIMIT_BYTES))
    raw = json_or_none(text)
    if raw is not None:
        return raw
    converted = as_json(text)
    if converted is not None:
        return json.loads(converted)
    if text.lstrip()[:1] in {"{", "["}:
        # It means to be JSON: say where it stops to be.
        return json_or_refuse(text)
    long = f"; YAML is read up to {YAML_LIMIT_CHARS >> 20} MiB" if len(text) > YAML_LIMIT_CHARS else ""
    raise RefusedError(f"is neither JSON nor YAML of a list or an object{long}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
