"""The readers by the name of their format, and which of them a text is for."""

from __future__ import annotations

from typing import Final, Protocol

from pyscheduler.readers.amd import amd_smi, rocm_smi
from pyscheduler.readers.cards import amd_metrics, dcgm, prometheus_json
from pyscheduler.readers.fabric import node_labels, slurm, topograph
from pyscheduler.readers.machine import dra, hwloc, nccl_xml
from pyscheduler.readers.nvidia import nvlink as nvidia_smi_nvlink
from pyscheduler.readers.nvidia import p2p as nvidia_smi_p2p
from pyscheduler.readers.nvidia import smi_xml as nvidia_smi_xml
from pyscheduler.readers.nvidia import topo as nvidia_smi_topo
from pyscheduler.readers.reading import Reading, RefusedError

__all__ = ["FORMATS", "Reader", "UnknownFormatError", "choose", "named"]

_QUOTED: Final = 60


class Reader(Protocol):
    """A module that reads one format."""

    @property
    def FORMAT(self) -> str:  # noqa: N802 (a constant of the module)
        """The name of the format."""

    def recognises(self, text: str) -> bool:
        """Tell whether `text` is of this format. Cheap, strict, and never raises."""

    def read(self, text: str) -> Reading:
        """Return the document that `text` describes, or raise `RefusedError`."""


# In the order in which they are asked, most specific first.
_READERS: Final[tuple[Reader, ...]] = (
    nvidia_smi_xml,
    nccl_xml,
    hwloc,
    dra,
    node_labels,
    topograph,
    prometheus_json,
    amd_smi,
    amd_metrics,
    dcgm,
    slurm,
    rocm_smi,
    nvidia_smi_topo,
    nvidia_smi_p2p,
    nvidia_smi_nvlink,
)
FORMATS: Final[dict[str, Reader]] = {reader.FORMAT: reader for reader in _READERS}


class UnknownFormatError(RefusedError):
    """No reader has this name, or recognises this text."""


def named(name: str) -> Reader:
    """Return the reader of format `name`.

    Raises
    ------
    UnknownFormatError
        If there is none.

    """
    if name not in FORMATS:
        raise UnknownFormatError(f"format {name!r} is not known; use auto or one of {', '.join(sorted(FORMATS))}")
    return FORMATS[name]


def choose(text: str) -> Reader:
    """Return the first reader that recognises `text`.

    Raises
    ------
    UnknownFormatError
        If none does; the message quotes the first line that is not blank.

    """
    for reader in FORMATS.values():
        if reader.recognises(text):
            return reader
    line, words = _first_words(text)
    known = ", ".join(sorted(FORMATS))
    if not words:
        raise UnknownFormatError(f"the input is empty; formats: {known}")
    raise UnknownFormatError(f'no reader recognises "{words}"; formats: {known}', line)


def _first_words(text: str) -> tuple[int, str]:
    """Return number and printable beginning of the first line with something on it."""
    for number, line in enumerate(text.split("\n"), start=1):
        words = "".join(c if c.isprintable() else " " for c in line[: 4 * _QUOTED]).split()
        if words:
            return number, " ".join(words)[:_QUOTED]
    return 0, ""
