"""Bytes of a file to the text that readers take."""

from __future__ import annotations

import codecs
import json
import re
import sys
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml

from pyscheduler.errors import PyschedulerError
from pyscheduler.readers.reading import RefusedError

__all__ = ["InputError", "as_json", "decode", "read_bytes"]

# The list of all ResourceSlices of some thousand nodes is below this.
LIMIT_BYTES: Final = 32 * 1024 * 1024
# YAML is parsed at 1 MB/s and less. `kubectl get -o json` gives the same without the wait.
YAML_LIMIT_CHARS: Final = 4 * 1024 * 1024

_BOMS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """A scalar is a value only where JSON writes it the same; all else is text: 010 is no 8, 1.10 no 1.1, yes no true."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


for _tag, _text, _first in (
    ("null", r"~|null|", ["~", "n", ""]),
    ("bool", r"true|false", ["t", "f"]),
    # 18 digits are whole in 64 bits.
    ("int", r"0|-?[1-9][0-9]{0,17}", list("-0123456789")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_text})\Z"), _first)


class InputError(PyschedulerError):
    """A file cannot be used as input. The message begins with its name."""


def read_bytes(path: str, limit: int | None = None) -> bytes:
    """Return what `path` holds; ``-`` is standard input.

    Raises
    ------
    InputError
        If it cannot be read or has more than `limit` bytes, by default 32 MiB.

    """
    limit = limit or LIMIT_BYTES
    try:
        if path == "-":
            content = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(limit + 1)
    except (OSError, ValueError) as failure:
        raise InputError(f"{path}: cannot be read ({getattr(failure, 'strerror', None) or failure})") from None
    if len(content) > limit:
        raise InputError(f"{path}: larger than {limit >> 20} MiB; pass the output of one machine or one cluster")
    return content


def decode(content: bytes) -> str:
    """Return the text of `content`. Bytes that are no text become U+FFFD, which no reader takes for a value."""
    for bom, encoding in _BOMS:
        if content.startswith(bom):
            return content[len(bom) :].decode(encoding, "replace")
    return content.decode("utf-8", "replace")


def as_json(text: str) -> str | None:
    """Return `text` as JSON if it is YAML that holds mappings or lists, several documents as a list; else None.

    Whole numbers, true, false and null are values. Every other plain scalar is the text as written, fractions too:
    what names a version or a rack must not change.

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
