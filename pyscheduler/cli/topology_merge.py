"""`pyscheduler topology merge`: outputs of several tools on one machine to the one document of its annotation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from pyscheduler.cli.input_text import InputError, decode, read_bytes
from pyscheduler.cli.read_input import reading
from pyscheduler.cli.terminal import printable
from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.classify import class_of
from pyscheduler.core.machine.device_class import class_hash
from pyscheduler.core.machine.document import NodeDocument
from pyscheduler.core.machine.merge import merge as merge_documents
from pyscheduler.errors import DocumentError
from pyscheduler.readers import formats, node_document
from pyscheduler.readers.class_document import config_map
from pyscheduler.readers.reading import RefusedError
from pyscheduler.readers.text.json_text import json_or_none

if TYPE_CHECKING:
    from pyscheduler.readers.measured.results import Results

__all__ = ["class_map", "merge"]

_LISTED: Final = 4
# Bytes that all annotations of an object may have (Kubernetes, TotalAnnotationSizeLimitB).
_ANNOTATIONS_MAX: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Input:
    """What one file holds: a document, with the machines that it names; or the results of a benchmark."""

    file: str
    document: dict[str, Any]
    hosts: tuple[str, ...] = ()
    results: Results | None = None


def merge(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Outputs of tools on one machine, the best first.")],
    boot_id: Annotated[str | None, typer.Option(help="Boot of the node during which they were made.")] = None,
    source: Annotated[str, typer.Option(help="Who says so, for the document.")] = "file",
    observed_at: Annotated[str | None, typer.Option(help="When they were made, as 2027-01-31T12:00:00Z.")] = None,
    host: Annotated[str | None, typer.Option(help="The machine to take from a file that holds several.")] = None,
    form: Annotated[
        Literal["whole", "shared"], typer.Option(help="shared leaves out what `topology class` prints, and names it by its hash.")
    ] = "whole",
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="text draws tree and matrix.")] = "json",
) -> None:
    """Merge FILEs on one machine into one node document, for the annotation pyscheduler.io/topology.

    Links of one tool, UUIDs of another, results of benchmarks. What they contradict each other in is told on stderr.
    """
    moment = _moment(observed_at)
    inputs = [_read(file) for file in files]
    _refuse_several(inputs, host)
    documents = [_document(each, host, named=len(inputs) > 1) for each in inputs if each.results is None]
    if not documents:
        raise InputError(f"{files[0]}: holds results of a benchmark; add a file that lists the GPUs, as nvidia-smi topo -m does")
    benchmarks = [(each.file, each.results) for each in inputs if each.results]
    merged = _measured(merge_documents(documents), benchmarks, moment)
    # What a document could not say is a warning of the one that is made of it.
    merged = replace(
        merged,
        source=source,
        observed_at=merged.observed_at if moment is None else moment,
        boot_id=boot_id or merged.boot_id,
        warnings=merged.warnings + merged.findings,
        findings=(),
    )
    if form == "shared":
        merged = replace(merged, class_hash=class_hash(class_of(merged)))
    text = node_document.dump(merged, shared=form == "shared")
    if output == "json":
        typer.echo(text)
        if len(text) > _ANNOTATIONS_MAX:
            typer.echo(
                f"document-too-large: {len(text)} bytes are more than the annotations of an object may have; use --form shared",
                err=True,
            )
        for warning in merged.warnings:
            typer.echo(printable(f"{warning.code}: {warning.message}"), err=True)
        return
    from pyscheduler.cli.topology_picture import draw

    draw({"format": source, "nics": [], "nic_links": [], "warnings": [], **json.loads(text)})


def class_map(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A whole node document, as `topology merge` prints it.")],
    namespace: Annotated[str, typer.Option(help="That of the service.")] = "default",
) -> None:
    """Print the ConfigMap of a machine's class, for `kubectl apply -f -`: equal machines share it, and their own documents stay small."""
    one = _read(file)
    if one.results is not None:
        raise InputError(f"{file}: holds results of a benchmark, not a node document")
    document = _document(one, None, named=False)
    if not document.whole:
        raise InputError(f"{file}: names its class and does not hold it; pass the whole document")
    typer.echo(json.dumps(config_map(class_of(document), namespace)))


def _moment(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InputError(f"--observed-at {text}: is no time with its zone; write it as 2027-01-31T12:00:00Z")
    return moment.timestamp()


def _read(file: str) -> _Input:
    try:
        content = _content(decode(read_bytes(file)))
    except (RefusedError, RecursionError) as failure:
        reason = failure if isinstance(failure, RefusedError) else "nested too deeply to be a topology"
        raise InputError(f"{file}: {reason}") from None
    if not isinstance(content, dict):
        return _Input(file, {}, results=content)
    if content["kind"] != "node":
        raise InputError(f"{file}: is of kind {content['kind']}, not node; pass the output of a tool that lists the GPUs of one")
    entries = content.get("gpus")
    hosts = [gpu.get("host") for gpu in entries if isinstance(gpu, dict)] if isinstance(entries, list) else []
    return _Input(file, content, tuple(dict.fromkeys(name for name in hosts if isinstance(name, str) and name)))


def _content(text: str) -> dict[str, Any] | Results:
    from pyscheduler.readers.measured import results

    known = json_or_none(text)
    if isinstance(known, dict) and known.get("kind") == "node":
        return known
    try:
        return reading(text).document()
    except formats.UnknownFormatError as unknown:
        try:
            return results.read(text)
        except RefusedError as refused:
            # That of a benchmark whose output is known but not usable says more.
            raise (refused if refused.line else unknown) from None


def _refuse_several(inputs: Sequence[_Input], host: str | None) -> None:
    """Refuse files that name several machines, or others than `host`."""
    for each in inputs:
        names = ", ".join(each.hosts[:_LISTED]) + (", ..." if len(each.hosts) > _LISTED else "")
        if host is None and len(each.hosts) > 1:
            raise InputError(f"{each.file}: holds {len(each.hosts)} machines ({names}): cut it to one, or name one with --host H")
        if host is not None and each.hosts and host not in each.hosts:
            raise InputError(f"{each.file}: holds no machine {host}, but {names}")
    named = {each.hosts[0]: each.file for each in reversed(inputs) if each.hosts and host is None}
    if len(named) > 1:
        (one, first), (other, second), *_ = reversed(named.items())
        raise InputError(f"{second}: is of the machine {other}, {first} of {one}; merge files of one machine")


def _document(one: _Input, host: str | None, *, named: bool) -> NodeDocument:
    """Return the document of a file. `named`: its warnings say which file they are of."""
    try:
        document = node_document.of_json(_cut(one.document, host) if host and len(one.hosts) > 1 else one.document)
    except DocumentError as failure:
        raise InputError(f"{one.file}: {failure}") from None
    if not named:
        return replace(document, source=one.file)
    return replace(
        document,
        source=one.file,
        warnings=_prefixed(one.file, document.warnings),
        findings=_prefixed(one.file, document.findings),
    )


def _prefixed(file: str, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(replace(finding, message=f"{file}: {finding.message}") for finding in findings)


def _cut(document: Mapping[str, Any], host: str) -> dict[str, Any]:
    """Return what a document of several machines says of one."""
    gpus = [gpu for gpu in document["gpus"] if isinstance(gpu, dict) and gpu.get("host") == host]
    ids = {gpu["id"] for gpu in gpus}
    cut = {**document, "gpus": gpus}
    for key in ("nics", "links", "nic_links", "p2p"):
        entries = document.get(key)
        cut[key] = [
            entry
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, dict)
            # Without a name its ids are enough: they are unique then.
            and all(entry.get(name, host) == host for name in ("host", "a_host", "b_host", "gpu_host"))
            and all(entry.get(end, gpus[0]["id"]) in ids for end in ("a", "b", "gpu"))
        ]
    return cut


def _measured(merged: NodeDocument, benchmarks: Sequence[tuple[str, Results]], moment: float | None) -> NodeDocument:
    """Add results of benchmarks. Those that do not say when they were made are of `moment`."""
    for file, one in benchmarks:
        timed = tuple(replace(m, observed_at=moment) if m.observed_at is None else m for m in one.measured)
        added = replace(
            merged,
            source=file,
            measured=merged.measured + timed,
            warnings=merged.warnings + _prefixed(file, one.findings),
        )
        merged = merge_documents([added])
    if any(result.observed_at is None for result in merged.measured):
        what = "results of benchmarks say no time: they never fade; pass --observed-at"
        merged = replace(merged, warnings=(*merged.warnings, Finding("measured-without-time", what)))
    return merged
