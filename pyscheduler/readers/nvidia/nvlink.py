"""``nvidia-smi nvlink --status``: how many NVLinks of each GPU are up. It does not tell to whom they lead."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyscheduler.readers.nvidia.gpu_list import Card, card_line
from pyscheduler.readers.reading import Finding, Reading, RefusedError
from pyscheduler.readers.text.terminal_text import plain_lines

__all__ = ["FORMAT", "ActiveLinks", "active_links", "read", "recognises"]

FORMAT: Final = "nvidia-smi-nvlink"

_LINK: Final = re.compile(r"\s*Link (\d{1,3}): (?:(\d{1,5}(?:\.\d{1,6})?) GB/s|<?(inactive)>?)\s*", re.IGNORECASE)
_CUT_LINK: Final = re.compile(r"\s*Lin(?:k(?: \d{0,3}(?::.{0,24})?)?)?\s*")
_ALL_INACTIVE: Final = re.compile(r".*all links are inactive.*", re.IGNORECASE)
_REFUSED: Final = re.compile(r"\s*(?:NVML: )?(?:Unable to retrieve|NVLink queries are not supported)\b.*", re.IGNORECASE)
_NOT_SHOWN: Final = re.compile(r".*(?:NVLink|NVML|MIG mode).*", re.IGNORECASE)
_LONGEST: Final = 512


@dataclass(slots=True)
class _State:
    """What is said of one GPU: speed in GB/s of each link (None: inactive), by number of the link.

    `refused`: the tool says that it cannot tell.
    """

    card: Card
    links: dict[int, float | None] = field(default_factory=dict)
    inactive: bool = False
    message: str = ""
    cut: bool = False
    refused: bool = False

    @property
    def active(self) -> int | None:
        """The number of links that are up, None where it is not known."""
        if self.cut or not (self.links or self.inactive):
            return None
        return sum(speed is not None for speed in self.links.values())

    @property
    def gbps(self) -> float | None:
        """GB/s of one link: of the slowest, where they differ."""
        speeds = [speed for speed in self.links.values() if speed is not None]
        return min(speeds) if speeds else None


def recognises(text: str) -> bool:
    """Tell whether a line of `text` is the state of a link, or the reason why there is none, below a GPU's line."""
    seen_card = False
    for line in plain_lines(text):
        if card_line(line, 0):
            seen_card = True
        elif seen_card and len(line) < _LONGEST and (_LINK.fullmatch(line) or _REFUSED.match(line)):
            return True
    return False


def read(text: str) -> Reading:
    """Return the GPUs with `nvlink_active` and `nvlink_gbps`; their links are unknown.

    Raises
    ------
    RefusedError
        If no GPU is listed.

    """
    states = _states(plain_lines(text))
    if not states:
        raise RefusedError('no GPU with the state of its links ("GPU 0: NAME (UUID: ...)" and "Link 0: 25 GB/s")')
    findings, whole = _told(states)
    body = {"gpus": [_gpu(state) for state in states], "nics": [], "links": [], "nic_links": []}
    return Reading("node", FORMAT, body, complete=whole, findings=tuple(findings))


@dataclass(frozen=True, slots=True)
class ActiveLinks:
    """What a text says besides: `fields` by id of the GPU; `whole`: nothing of it is unknown."""

    fields: dict[str, dict[str, Any]]
    findings: list[Finding]
    whole: bool


def active_links(lines: Sequence[str]) -> ActiveLinks | None:
    """Return the state of links in `lines`, None if they hold none: GPUs that are only listed say nothing of it."""
    states = [state for state in _states(lines) if state.links or state.inactive or state.refused]
    if not states:
        return None
    findings, whole = _told(states)
    return ActiveLinks({_name(state): _active(state) for state in states}, findings, whole)


def _told(states: Sequence[_State]) -> tuple[list[Finding], bool]:
    """Return what is to be said of the links, and whether all their states are known."""
    unknown = [_unknown(state) for state in states if state.active is None]
    return [*unknown, *(finding for state in states for finding in _of_links(state)), *_fewer(states)], not unknown


def _states(lines: Sequence[str]) -> list[_State]:
    states: dict[int, _State] = {}
    current: _State | None = None
    for number, line in enumerate(lines, start=1):
        if len(line) >= _LONGEST:
            continue
        if card := card_line(line, number):
            current = states.setdefault(card.index, _State(card))
        elif current:
            _add(current, line)
    return list(states.values())


def _add(state: _State, line: str) -> None:
    if link := _LINK.fullmatch(line):
        number, speed = int(link[1]), float(link[2]) if link[2] else None
        before = state.links.get(number, speed)
        state.links[number] = min(speed, before) if speed is not None and before is not None else None
    elif _ALL_INACTIVE.match(line):
        state.inactive = True
    elif _CUT_LINK.fullmatch(line):
        state.cut = True
    elif _NOT_SHOWN.match(line):
        state.message = " ".join(line.split())[:120]
        state.refused = state.refused or _REFUSED.match(line) is not None


def _name(state: _State) -> str:
    return f"GPU{state.card.index}"


def _gpu(state: _State) -> dict[str, Any]:
    gpu: dict[str, Any] = {"id": _name(state), "numa": None, "cpu_affinity": None, "uuid": state.card.uuid, "pci": None}
    return gpu | {"model": state.card.model, **_active(state)}


def _active(state: _State) -> dict[str, Any]:
    return {"nvlink_active": state.active, "nvlink_gbps": state.gbps}


def _unknown(state: _State) -> Finding:
    line = f"line {state.card.line}: NVLink state of {_name(state)} is unknown"
    if state.cut:
        return Finding("nvlink-cut", f"{line}: a line of its links is cut or unreadable")
    if state.message:
        return Finding("nvlink-unknown", f'{line} ("{state.message}")')
    return Finding("nvlink-unknown", f"{line}: no link is listed")


def _of_links(state: _State) -> list[Finding]:
    """Return findings on links that are down, or slower than the others of their GPU."""
    down = [str(number) for number, speed in state.links.items() if speed is None]
    speeds = sorted({speed for speed in state.links.values() if speed is not None})
    findings = []
    if down:
        findings.append(Finding("nvlink-inactive", f"{_name(state)}: NVLink {', '.join(down)} is inactive"))
    if len(speeds) > 1:
        text = f"{_name(state)}: NVLinks run at {' and '.join(f'{speed:g}' for speed in speeds)} GB/s; the slowest counts"
        findings.append(Finding("nvlink-slow", text))
    return findings


def _fewer(states: Sequence[_State]) -> list[Finding]:
    """Tell which GPUs have fewer active links than most of their model."""
    findings = []
    for model in dict.fromkeys(state.card.model for state in states):
        peers = [state for state in states if state.card.model == model and state.active is not None]
        counts = Counter(state.active or 0 for state in peers)
        usual, times = max(counts.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
        findings += [
            Finding("nvlink-fewer", f"{_name(state)} has {state.active} active NVLinks, {times} others of its model have {usual}")
            for state in peers
            if (state.active or 0) < usual
        ]
    return findings
