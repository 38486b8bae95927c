"""The runs of nccl-tests in a text: where each begins and ends, and what it shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pyscheduler.readers.measured.nccl_table import Layout, Rank, Row, is_header, is_rank, layout, rank, row

__all__ = ["Run", "find_runs"]

_NAME: Final = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|alltoallv?|broadcast|reduce|sendrecv|scatter|gather|hypercube)_perf(?:_mpi)?\b"
)
_STARTS: Final = re.compile(r"#?\s*(?:nThread\s+\d|Collective test starting:|nccl-tests version\b)")
_PER_PROCESS: Final = re.compile(r"#?\s*nThread\s+(\d{1,4})\s+nGpus\s+(\d{1,4})\b")
_CONCLUDED: Final = re.compile(r"#?\s*Collective test concluded:")
_DEVICES: Final = re.compile(r"#?\s*Using devices\b")
_BOUNDS: Final = re.compile(r"#?\s*Out of bounds values\s*:\s*\d+\s+FAILED")
_FOOTER: Final = re.compile(r"#?\s*Avg bus bandwidth\s*:")
_FAILURE: Final = re.compile(
    r"\bTest (?:CUDA |NCCL |HIP )?failure\b|\bout of memory\b|\bInvalid number of GPUs\b|\bexited on signal\b",
    re.IGNORECASE,
)
_LOG: Final = re.compile(r"\bNCCL (?:INFO|WARN|TRACE|VERSION)\b")
_ROW_BEGINS: Final = re.compile(r"\s*\d+\s+\d+\s+[a-z]")


@dataclass(slots=True)
class Run:
    """One run of one test, as far as the text shows it. Lines count from 1; 0 where there is none."""

    line: int
    collective: str = ""
    ranks: list[Rank] = field(default_factory=list)
    ranks_cut: int = 0
    per_process: int = 0
    columns: Layout | None = None
    rows: list[Row] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    out_of_bounds: int = 0
    failed: int = 0
    mixed: int = 0
    ended: bool = False

    @property
    def hosts(self) -> list[str]:
        """The hosts of its ranks, each once."""
        return list(dict.fromkeys(one.host for one in self.ranks))


def find_runs(lines: Sequence[str]) -> list[Run]:
    """Return the runs in the order of `lines`."""
    runs: list[Run] = []
    named = ""
    for number, line in enumerate(lines, start=1):
        # A row that a log line broke is still seen, as one that cannot be read.
        if _LOG.search(line) and not _ROW_BEGINS.match(line):
            continue
        if _begins(line, runs[-1] if runs else None):
            runs.append(Run(number, named))
            named = ""
        if runs:
            _take(runs[-1], line, number)
        if (found := _NAME.search(line)) and not _CONCLUDED.match(line):
            # A command is of the run that follows; the header of a run is of this run.
            if _STARTS.match(line):
                runs[-1].collective = found[1]
            else:
                named = found[1]
    return [run for run in runs if run.ranks or run.ranks_cut or run.columns or run.failed]


def _begins(line: str, run: Run | None) -> bool:
    """Tell whether `line` is the first of another run than `run`."""
    if run is None:
        return bool(_STARTS.match(line) or _DEVICES.match(line) or is_header(line) or is_rank(line))
    if _STARTS.match(line) or _DEVICES.match(line):
        return bool(run.ranks or run.columns or run.failed)
    return run.ended and (is_header(line) or is_rank(line))


def _take(run: Run, line: str, number: int) -> None:
    if processes := _PER_PROCESS.match(line):
        run.per_process = int(processes[1]) * int(processes[2])
    elif is_rank(line):
        _take_rank(run, line, number)
    elif is_header(line):
        # Processes that know nothing of each other print a header each.
        run.mixed = run.mixed or number * bool(run.columns)
        run.columns = layout(line)
    elif run.columns and _ROW_BEGINS.match(line):
        _take_row(run, run.columns, line, number)
    else:
        _take_end(run, line, number)


def _take_rank(run: Run, line: str, number: int) -> None:
    if found := rank(line):
        run.ranks.append(found)
    else:
        run.ranks_cut = run.ranks_cut or number


def _take_row(run: Run, columns: Layout, line: str, number: int) -> None:
    found = row(line, columns)
    if found is None or found.busbw is None:
        run.unreadable.append(number)
    elif found.wrong:
        run.wrong.append(number)
    else:
        run.rows.append(found)


def _take_end(run: Run, line: str, number: int) -> None:
    if (concluded := _CONCLUDED.match(line)) and (name := _NAME.search(line, concluded.end())):
        run.collective = run.collective or name[1]
    elif _BOUNDS.match(line):
        run.out_of_bounds = number
    elif _FOOTER.match(line):
        run.mixed = run.mixed or number * run.ended
        run.ended = True
    elif _FAILURE.search(line) and not run.ended:
        run.failed = run.failed or number
