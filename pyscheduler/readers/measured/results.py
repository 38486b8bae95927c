"""Whatever benchmark a text is the output of: its results."""

from __future__ import annotations

from typing import Final, Protocol

from pyscheduler.core.findings import Finding
from pyscheduler.readers.measured import ib_write_bw, nccl_tests, p2p_bandwidth
from pyscheduler.readers.measured.output import Results
from pyscheduler.readers.reading import RefusedError

__all__ = ["Results", "read"]


class _Reader(Protocol):
    @property
    def TOOL(self) -> str: ...  # noqa: N802 (a constant of the module)

    def recognises(self, text: str) -> bool: ...

    def read(self, text: str) -> Results: ...


_READERS: Final[tuple[_Reader, ...]] = (nccl_tests, p2p_bandwidth, ib_write_bw)


def read(text: str) -> Results:
    """Return what `text`, the output of one benchmark, tells.

    Raises
    ------
    RefusedError
        If it is of none that is known, or holds no usable figure.

    """
    readers = [reader for reader in _READERS if reader.recognises(text)]
    if not readers:
        known = ", ".join(reader.TOOL for reader in _READERS)
        raise RefusedError(f"no output of a benchmark is recognised; known are {known}")
    results = readers[0].read(text)
    others = tuple(
        Finding("other-benchmark", f"the text also holds output of {reader.TOOL}, which is not read", "read each output alone")
        for reader in readers[1:]
    )
    return Results(results.tool, results.measured, results.findings + others)
