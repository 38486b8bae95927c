"""A file to what its reader makes of it."""

from __future__ import annotations

from pyscheduler.cli.input_text import as_json
from pyscheduler.readers import formats
from pyscheduler.readers.reading import Reading

__all__ = ["reading"]


def reading(text: str, format_: str = "auto") -> Reading:
    """Read `text` as it is; where no reader takes it so, as the JSON of its YAML.

    Raises
    ------
    RefusedError
        If no reader recognises it, or it holds nothing that can be used.

    """
    if format_ == "auto":
        try:
            return formats.choose(text).read(text)
        except formats.UnknownFormatError as as_it_is:
            converted = as_json(text)
            try:
                reader = formats.choose(converted or "")
            except formats.UnknownFormatError:
                # Its line and words are those of the file.
                raise as_it_is from None
            return reader.read(converted or "")
    reader = formats.named(format_)
    converted = None if reader.recognises(text) else as_json(text)
    return reader.read(converted if converted and reader.recognises(converted) else text)
