"""``ib_write_bw`` and its kin of perftest: what one NIC sends to another node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pyscheduler.core.machine.document import Measured
from pyscheduler.readers.measured.output import Notes, Results, bare_lines, positive

__all__ = ["TOOL", "read", "recognises"]

TOOL: Final = "ib-write-bw"

# perftest's default message (DEF_SIZE_BW). Smaller ones show how many messages a NIC sends, not how many bytes.
_LARGE: Final = 65536
# GB/s of one unit. The help of --report_gbits says: MB is 2^20 bytes (newer versions call it MiB), Gb is 10^9 bits.
_UNITS: Final = {"MB/sec": 2**20 / 1e9, "MiB/sec": 2**20 / 1e9, "Gb/sec": 1 / 8}

_TITLE: Final = re.compile(r"\s*(RDMA_Write|RDMA_Read|Send|Atomic\w*|Raw\w*) ([\w ]{0,60}?)(BW|Latency) Test\s*")
_DEVICE: Final = re.compile(r"\bDevice\s*:\s*([A-Za-z][\w.-]{0,63})(?=\s|$)")
_DUAL: Final = re.compile(r"\s*Dual-port\s*:\s*ON\b")
_COLUMN: Final = re.compile(r"#\w+|(?:BW|MsgRate|CPU_Util)[ \w]{0,20}\[[^\]\s]{1,12}\]")
_AVERAGE: Final = re.compile(r"BW average\[(MB/sec|MiB/sec|Gb/sec)\]")
_VALUE: Final = re.compile(r"-?\d{1,18}(?:\.\d{0,9})?|-?nan|-?inf")


@dataclass(frozen=True, slots=True)
class _Table:
    """Where the average is in a row, and GB/s of its unit."""

    average: int
    unit: float


@dataclass(slots=True)
class _Run:
    """One test. `rows` holds bytes of a message to GB/s, the best where a size comes twice."""

    line: int
    verb: str = ""
    how: str = ""
    kind: str = ""
    device: str = ""
    dual: bool = False
    table: _Table | None = None
    rows: dict[int, float] = field(default_factory=dict)
    unreadable: list[int] = field(default_factory=list)


def recognises(text: str) -> bool:
    """Tell whether a line of `text` is the title or the table header of a bandwidth or latency test."""
    return any(_TITLE.fullmatch(line) or _is_header(line) for line in bare_lines(text))


def read(text: str) -> Results:
    """Return one result per test in one direction: the average of its largest message.

    Raises
    ------
    RefusedError
        If there is none.

    """
    notes = Notes()
    measured = [result for run in _runs(bare_lines(text)) if (result := _result(run, notes))]
    return notes.results(TOOL, measured)


def _is_header(line: str) -> bool:
    return line.lstrip().startswith("#bytes") and ("BW average[" in line or "t_avg[" in line)


def _runs(lines: Sequence[str]) -> list[_Run]:
    runs: list[_Run] = []
    for number, line in enumerate(lines, start=1):
        if title := _TITLE.fullmatch(line):
            runs.append(_Run(number, title[1], title[2].strip(), title[3]))
        elif _is_header(line):
            # A second table without a title between is of a test whose head is lost.
            if not runs or runs[-1].table:
                runs.append(_Run(number))
            runs[-1].table = _table(line)
        elif runs:
            _take(runs[-1], line, number)
    return runs


def _table(line: str) -> _Table | None:
    columns = [column[0] for column in _COLUMN.finditer(line)]
    for at, name in enumerate(columns):
        if unit := _AVERAGE.fullmatch(name):
            return _Table(at, _UNITS[unit[1]])
    return None


def _take(run: _Run, line: str, number: int) -> None:
    if run.table is None:
        run.dual = run.dual or _DUAL.match(line) is not None
        if not run.device and (device := _DEVICE.search(line)):
            run.device = device[1]
        return
    words = line.split()
    if not words or not all(_VALUE.fullmatch(word) for word in words):
        return
    # The column behind the average must have begun: else the average may be cut.
    average = positive(words[run.table.average]) if len(words) > run.table.average + 1 else None
    size = positive(words[0])
    if average is None or size is None:
        run.unreadable.append(number)
    else:
        run.rows[int(size)] = max(average * run.table.unit, run.rows.get(int(size), 0.0))


def _result(run: _Run, notes: Notes) -> Measured | None:
    if (reason := _unusable(run)) is not None:
        notes.add(*reason)
        return None
    notes.rows("row-unreadable", run.unreadable, "is cut or holds no positive average")
    if not run.rows:
        notes.add("rows-missing", run.line, f"no row of the test of {run.device} is usable", "pass the whole output")
        return None
    size = max(run.rows)
    if size < _LARGE:
        sentence = f"the largest message has {size} bytes, which tells the message rate and not the bandwidth"
        notes.add("message-small", run.line, sentence, f"measure with -s {_LARGE} or more")
        return None
    if run.verb != "RDMA_Write":
        notes.note("other-verb", run.line, f"bandwidth of {run.verb}, not of RDMA_Write")
    return Measured(TOOL, run.rows[size], nic=run.device, nodes=2)


def _unusable(run: _Run) -> tuple[str, int, str, str] | None:
    """Return code, line, sentence and remedy of why the test tells nothing of one direction of one NIC."""
    whole = "pass the whole output"
    if run.kind == "Latency":
        return "latency-test", run.line, "a latency test tells no bandwidth", "measure with ib_write_bw"
    if not run.kind:
        return "title-missing", run.line, "the title of the test is missing, so it may be of both directions", whole
    if run.verb.startswith(("Atomic", "Raw")):
        return "other-test", run.line, f"a {run.verb} test tells no bandwidth of a NIC", "measure with ib_write_bw"
    if "Bidirectional" in run.how:
        return "bidirectional", run.line, "the figure is the sum of both directions", "measure without -b"
    if run.dual:
        return "dual-port", run.line, "the figure is the sum of two ports", "measure one port, without -O"
    if not run.device:
        return "device-missing", run.line, "no line names the device", whole
    return None
