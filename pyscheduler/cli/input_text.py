"""Bytes of a file to the text that readers take."""

from __future__ import annotations

import codecs
import json
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from pyscheduler.errors import PyschedulerError
from pyscheduler.readers.reading import RefusedError

__all__ = ["InputError", "as_json", "decode", "read_bytes"]

# The list of all ResourceSlices of some thousand nodes is below this.
LIMIT_BYTES: Final = 32 * 1024 * 1024
# YAML is parsed at 1 MB/s and less. `kubectl get -o json` gives the same without the wait.
YAML_LIMIT_CHARS: Final = 4 * 1024 * 1024

_BOMS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class InputError(PyschedulerError):
    """A file cannot be used as input. The message begins with its name."""


def read_bytes(path: str) -> bytes:
    """Return what `path` holds; ``-`` is standard input.

    Raises
    ------
    InputError
        If it cannot be read or has more than 32 MiB.

    """
    try:
        if path == "-":
            content = sys.stdin.buffer.read(LIMIT_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(LIMIT_BYTES + 1)
    except (OSError, ValueError) as failure:
        raise InputError(f"{path}: cannot be read ({getattr(failure, 'strerror', None) or failure})") from None
    if len(content) > LIMIT_BYTES:
        raise InputError(f"{path}: larger than {LIMIT_BYTES >> 20} MiB; pass the output of one machine or one cluster")
    return content


def decode(content: bytes) -> str:
    """Return the text of `content`. Bytes that are no text become U+FFFD, which no reader takes for a value."""
    for bom, encoding in _BOMS:
        if content.startswith(bom):
            return content[len(bom) :].decode(encoding, "replace")
    return content.decode("utf-8", "replace")


def as_json(text: str) -> str | None:
    """Return `text` as JSON if it is YAML that holds mappings or lists, several documents as a list; else None.

    Raises
    ------
    RefusedError
        If its aliases expand to more than any real input has.

    """
    if len(text) > YAML_LIMIT_CHARS:
        return None
    try:
        documents = [d for d in yaml.load_all(text, _Loader) if d is not None]
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    if not documents or not all(isinstance(d, dict | list) for d in documents):
        return None
    return _dump(documents[0] if len(documents) == 1 else documents)


def _dump(value: Any) -> str | None:
    pieces: list[str] = []
    size = 0
    try:
        for piece in json.JSONEncoder(default=str).iterencode(value):
            pieces.append(piece)
            size += len(piece)
            if size > LIMIT_BYTES:
                raise RefusedError(f"its YAML aliases expand to more than {LIMIT_BYTES >> 20} MiB; write them out")
    except (TypeError, ValueError, RecursionError):
        return None
    return "".join(pieces)
