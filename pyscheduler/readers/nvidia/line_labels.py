"""Output of several machines in one text, each line with its machine's name: ``node7: GPU0 ...``, ``[0] GPU0 ...``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyscheduler.readers.reading import RefusedError

__all__ = ["Labelled", "labelled", "other_labels"]

# What pdsh, clush and srun -l print, and mpirun with tagged or prefixed output.
_LABEL: Final = re.compile(r"(?:([\w.-]{1,253}):(?: |$)|\[([\w.,:-]{1,253})\](?:<\w{1,8}>)?:? ?)")
_TABLE: Final = re.compile(r"\s*GPU\d{1,4}(?:\s|$)", re.IGNORECASE)
# 45 lines of each of some 300 machines. Each is read from a text of as many lines, so that the numbers of lines stay.
_MOST_LINES: Final = 20_000
_MOST_LINES_IN_ALL: Final = 4_000_000


@dataclass(frozen=True, slots=True)
class Labelled:
    """The lines of one label, at their places; all others are empty. `is_name`: a host's, and not the number of a process."""

    label: str
    is_name: bool
    lines: list[str]


def labelled(lines: Sequence[str]) -> Iterator[Labelled]:
    """Yield the text of each label that stands before a header or row, in order; none if no line has one.

    Raises
    ------
    RefusedError
        If there are far more of them than any paste of a topology has.

    """
    split = [_split(line) for line in lines]
    # Labels of other lines are no machines: "NIC0: mlx5_0", "Warning: ...".
    found = {label: is_name for label, is_name, rest in split if label and _TABLE.match(rest)}
    if found and (len(lines) > _MOST_LINES or len(found) * len(lines) > _MOST_LINES_IN_ALL):
        raise RefusedError(f"{len(lines)} lines of {len(found)} machines; parse the output of a few machines at a time")
    for label, is_name in found.items():
        yield Labelled(label, is_name, [rest if mine == label else "" for mine, _, rest in split])


def other_labels(lines: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return the labels, besides those `known`, of lines with something on them."""
    labels = dict.fromkeys(label for label, _, rest in map(_split, lines) if label and rest.strip())
    return [label for label in labels if label not in set(known)]


def _split(line: str) -> tuple[str, bool, str]:
    """Return the label of `line`, whether it is a name, and what follows; an empty label if there is none."""
    match = _LABEL.match(line)
    if match is None:
        return "", False, ""
    name, process = match[1], match[2]
    return name or process, bool(name) and not name.isdecimal(), line[match.end() :]
