"""A file to what its reader makes of it."""

from __future__ import annotations

import json
from typing import Any, Final

from pyscheduler.cli.input_text import as_json
from pyscheduler.errors import DocumentError
from pyscheduler.readers import formats, node_document
from pyscheduler.readers.machine import hwloc, nccl_xml
from pyscheduler.readers.nvidia import smi_xml
from pyscheduler.readers.reading import Reading, RefusedError
from pyscheduler.readers.text.json_text import json_or_none

__all__ = ["reading"]

# Our own node document, as a tool's output that needs no reader.
_DOCUMENT: Final = "document"
# Text of tools is far below: nvidia-smi and rocm-smi print some hundred lines, scontrol one of each switch. JSON and XML,
# which readers take in one step, may be longer.
_TEXT_LINES: Final = 200_000
_TEXT_CHARS: Final = 4 * 1024 * 1024
_XML_READERS: Final[tuple[formats.Reader, ...]] = (smi_xml, nccl_xml, hwloc)


def reading(text: str, format_: str = "auto") -> Reading:
    """Read `text` as it is; where no reader takes it so, as the JSON of its YAML.

    Raises
    ------
    RefusedError
        If no reader recognises it, it is too long, or it holds nothing that can be used.

    """
    if _is_long(text) and not _is_structured(text):
        raise RefusedError("is longer than any tool prints; pass the output of one machine")
    if format_ == "auto":
        return _recognised(text)
    if format_ == _DOCUMENT:
        own = _own(json_or_none(text)) or _own(json.loads(as_json(text) or "null"))
        if own is None:
            raise RefusedError('is no node document: "kind" must be "node", "version" 1 and "gpus" a list')
        return own
    reader = formats.named(format_)
    converted = None if reader.recognises(text) else as_json(text)
    return reader.read(converted if converted and reader.recognises(converted) else text)


def _is_long(text: str) -> bool:
    return len(text) > _TEXT_CHARS or text.count("\n") > _TEXT_LINES


def _is_structured(text: str) -> bool:
    """Tell whether `text` is JSON, or XML of a known tool."""
    first = text.lstrip()[:1]
    if first == "<":
        return any(reader.recognises(text) for reader in _XML_READERS)
    return first in {"{", "["} and json_or_none(text) is not None


def _recognised(text: str) -> Reading:
    own = _own(json_or_none(text)) if '"gpus"' in text else None
    if own is not None:
        return own
    try:
        return formats.choose(text).read(text)
    except formats.UnknownFormatError as as_it_is:
        converted = as_json(text)
        own = _own(json.loads(converted or "null"))
        if own is not None:
            return own
        try:
            reader = formats.choose(converted or "")
        except formats.UnknownFormatError:
            # Its line and words are those of the file.
            raise as_it_is from None
        return reader.read(converted or "")


def _own(raw: Any) -> Reading | None:
    """Return the node document that this is, without what cannot be used; None if it is another thing."""
    if not isinstance(raw, dict) or raw.get("kind") != "node" or raw.get("version") != 1 or not isinstance(raw.get("gpus"), list):
        return None
    try:
        document = node_document.of_json(raw)
    except DocumentError as cause:
        raise RefusedError(str(cause)) from None
    body = {"nics": [], "links": [], "nic_links": [], **json.loads(node_document.dump(document))}
    head = {"version", "kind", "complete", "warnings"}
    return Reading(
        "node",
        _DOCUMENT,
        {key: value for key, value in body.items() if key not in head},
        document.complete,
        document.warnings + document.findings,
    )
