"""nccl-tests and rccl-tests: the bus bandwidth that a collective of some GPUs reached."""

from __future__ import annotations

from collections import Counter
from typing import Final

from pyscheduler.core.machine.document import Measured
from pyscheduler.readers.measured.nccl_runs import Run, find_runs
from pyscheduler.readers.measured.nccl_table import Row, is_header, rank
from pyscheduler.readers.measured.output import Notes, Results, bare_lines
from pyscheduler.readers.text.parts import some

__all__ = ["TOOL", "read", "recognises"]

TOOL: Final = "nccl-tests"

# From about here on the time of a collective grows with its size; below it is mostly latency.
_LARGE: Final = 16 << 20
_ALL_REDUCE: Final = "all_reduce"


def recognises(text: str) -> bool:
    """Tell whether a line of `text` is of a table's header, or of the list of ranks."""
    return any(rank(line) is not None or is_header(line) for line in bare_lines(text))


def read(text: str) -> Results:
    """Return one result per run: the best bus bandwidth of its largest message.

    Raises
    ------
    RefusedError
        If there is none.

    """
    notes = Notes()
    measured: list[Measured] = []
    hosts: dict[str, int] = {}
    for run in find_runs(bare_lines(text)):
        result = _result(run, notes)
        if result is None:
            continue
        measured.append(result)
        if result.nodes == 1:
            hosts.setdefault(run.hosts[0], run.line)
    if len(hosts) > 1:
        sentence = f"results of one host each, of {some(hosts)}, in one text"
        notes.add("several-hosts", list(hosts.values())[1], sentence, "read the output of each machine alone")
    return notes.results(TOOL, measured)


def _result(run: Run, notes: Notes) -> Measured | None:
    if (reason := _unusable(run)) is not None:
        notes.add(*reason)
        return None
    notes.rows("values-wrong", run.wrong, "holds wrong values and is not used", "check links, GPUs and NICs")
    notes.rows("row-unreadable", run.unreadable, "is cut or holds no positive bus bandwidth")
    if not run.rows:
        notes.add("rows-missing", run.line, "no row of the table is usable", "pass the whole output")
        return None
    size = max(one.size for one in run.rows)
    if size < _LARGE:
        sentence = f"the largest message has {size} bytes, which tells latency and not bandwidth"
        notes.add("message-small", run.line, sentence, "measure messages of 16 MB and more, for example with -e 1G")
        return None
    best = max((one for one in run.rows if one.size == size), key=lambda one: one.busbw or 0.0)
    _say_collective(run, best, notes)
    if not run.ended:
        notes.note("output-cut", run.line, f"the end of the run is missing; its largest message that is shown has {size} bytes")
    hosts = run.hosts
    gpus = tuple(f"GPU{device}" for device in sorted(one.device for one in run.ranks)) if len(hosts) == 1 else ()
    return Measured(TOOL, best.busbw or 0.0, gpus=gpus, nodes=len(hosts))


def _say_collective(run: Run, best: Row, notes: Notes) -> None:
    name = run.collective or (_ALL_REDUCE if _is_all_reduce(best, len(run.ranks)) else "")
    if not name:
        notes.add("collective-unknown", run.line, "the collective is not named, and may be another than all_reduce")
    elif name != _ALL_REDUCE:
        # doc/PERFORMANCE.md of nccl-tests: bus bandwidth is made to compare with that of the hardware.
        sentence = f"bus bandwidth of {name}, not of all_reduce; nccl-tests defines it so that both compare"
        notes.note("other-collective", run.line, sentence)


def _is_all_reduce(best: Row, ranks: int) -> bool:
    """Tell whether bus and algorithm bandwidth of a reduction without a root differ as those of an all-reduce.

    They do by 2 (n - 1) / n for n ranks, those of a reduce-scatter by half of it (doc/PERFORMANCE.md of nccl-tests).
    """
    if best.redop in {None, "none"} or best.root not in {None, -1} or not best.algbw or not best.busbw:
        return False
    return abs(best.busbw / best.algbw / (2 * (ranks - 1) / ranks) - 1) < 0.1


def _unusable(run: Run) -> tuple[str, int, str, str] | None:
    """Return code, line, sentence and remedy of why the run tells no bandwidth of GPUs that are known."""
    whole = "pass the whole output"
    if run.failed:
        sentence = "the run failed, none of its figures is used"
        return "run-failed", run.failed, sentence, "run it again, with a smaller -e if memory lacks"
    if (doubt := _ranks_doubt(run)) is not None:
        return doubt
    if run.mixed:
        return "runs-mixed", run.mixed, "output of several processes is mixed", "build nccl-tests with MPI=1"
    if len(run.ranks) == 1:
        return "one-rank", run.line, "one rank alone moves nothing between GPUs", "run it on two GPUs or more"
    if run.columns is None:
        return "table-missing", run.line, "no table, or one whose header is cut", whole
    if run.out_of_bounds and not run.columns.counts_wrong:
        return "values-wrong", run.out_of_bounds, "some values were wrong, and not told which", "check links, GPUs and NICs"
    return None


def _ranks_doubt(run: Run) -> tuple[str, int, str, str] | None:
    """Return why the GPUs that took part are not known, None if they are."""
    whole = "pass the whole output"
    if run.ranks_cut:
        return "ranks-cut", run.ranks_cut, "the list of ranks is cut, so the GPUs that took part are not known", whole
    if not run.ranks:
        return "ranks-missing", run.line, "no line names the ranks and their GPUs", whole
    numbers = Counter(one.number for one in run.ranks)
    if max(numbers.values()) > 1:
        sentence = "a rank is listed twice: output of several processes is mixed"
        return "runs-mixed", run.line, sentence, "build nccl-tests with MPI=1"
    if max(numbers) != len(numbers) - 1:
        return "ranks-missing", run.line, f"of ranks 0 to {max(numbers)} only {len(numbers)} are listed", whole
    # The tool lists as many ranks of one process as fit a buffer.
    if run.per_process and len(numbers) % run.per_process:
        sentence = f"{len(numbers)} ranks are listed, but each process has {run.per_process}"
        return "ranks-missing", run.line, sentence, "run it with one GPU per process"
    if len({one.group for one in run.ranks}) > 1:
        return "ranks-split", run.line, "the ranks ran in groups apart from each other", "run it without NCCL_TESTS_SPLIT"
    if len({(one.host, one.device) for one in run.ranks}) < len(run.ranks) and len(run.hosts) == 1:
        sentence = "several ranks name the same device, so the GPUs that took part are not known"
        return "devices-hidden", run.line, sentence, "run it with all GPUs visible to each process (CUDA_VISIBLE_DEVICES)"
    return None
