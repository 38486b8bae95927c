"""What the readers of benchmark output share: their result, notes on the way to it, and lines without what launchers add."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.machine.document import Measured
from pyscheduler.readers.reading import RefusedError
from pyscheduler.readers.text.terminal_text import plain_lines

__all__ = ["Notes", "Results", "bare_lines", "positive"]

# A table row has some 200 characters; what is far longer is none, and is not worth a look.
_LONGEST: Final = 4096
_STAMP: Final = r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?:?[ \t]"
_DATE: Final = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}(?=[\[<])"
_TAG: Final = r"(?:\[[^\]\s]{1,80}\])?<std(?:out|err|diag)>:[ \t]?"
_TASK: Final = r"\d{1,5}: "
_POD: Final = r"\[pod/[^\]\s]{1,200}\][ \t]"
_QUOTE: Final = r">[ \t]"
# What logs, mpirun (--tag-output, --timestamp-output), srun --label, kubectl logs --prefix and mails put before a line.
_PREFIX: Final = re.compile(rf"(?:{_STAMP}|{_DATE}|{_TAG}|[ \t]{{0,8}}{_TASK}|{_POD}|{_QUOTE})+")
_NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{0,9})?(?:[eE][+-]?\d{1,2})?")


@dataclass(frozen=True, slots=True)
class Results:
    """What one text of benchmark output tells.

    Attributes
    ----------
    tool
        The benchmark, as in `Measured.tool`.
    measured
        At least one result, in the order of the text.
    findings
        What could not be used, and what to know of the results.
    """

    tool: str
    measured: tuple[Measured, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True)
class Notes:
    """Findings while a text is read. The first one is the reason where nothing of the text can be used."""

    findings: list[Finding] = field(default_factory=list)
    _reason: tuple[int, str] | None = None

    def add(self, code: str, line: int, sentence: str, remedy: str = "", severity: Severity = Severity.WARNING) -> None:
        """Keep a finding on `line`, from 1."""
        self.findings.append(Finding(code, f"line {line}: {sentence}", remedy, severity=severity))
        if self._reason is None and severity is not Severity.NOTE:
            self._reason = (line, f"{sentence}; {remedy}" if remedy else sentence)

    def note(self, code: str, line: int, sentence: str) -> None:
        """Keep what is worth knowing and needs no deed."""
        self.add(code, line, sentence, severity=Severity.NOTE)

    def rows(self, code: str, lines: list[int], fault: str, remedy: str = "") -> None:
        """Keep what is wrong with the rows on `lines`, as one finding; nothing if there is none."""
        if lines:
            others = f"; {len(lines) - 1} more do so" if len(lines) > 1 else ""
            self.add(code, lines[0], f"the row {fault}{others}", remedy)

    def results(self, tool: str, measured: list[Measured]) -> Results:
        """Return the results.

        Raises
        ------
        RefusedError
            If there is none, with the first reason.

        """
        if measured:
            return Results(tool, tuple(measured), tuple(self.findings))
        line, reason = self._reason or (1, "the output holds no result; pass the whole output")
        raise RefusedError(f"no usable figure of {tool}: {reason}", line)


def bare_lines(text: str) -> list[str]:
    """Return the lines as the benchmark wrote them; line n of the text is item n - 1."""
    return [_bare(line) for line in plain_lines(text)]


def _bare(line: str) -> str:
    if len(line) > _LONGEST:
        return ""
    prefix = _PREFIX.match(line)
    return line[prefix.end() :] if prefix else line


def positive(text: str) -> float | None:
    """Return a number above 0; None for what is none, and for nan, inf and 0."""
    number = float(text) if text.isascii() and _NUMBER.fullmatch(text) else 0.0
    return number if number > 0 else None
