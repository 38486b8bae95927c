"""What a Node object says of its cards: labels, annotations, conditions and taints of those who look after GPUs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from pyscheduler.core.capacity.opinions import ALL_CARDS, SAYS_NOTHING, NodeOpinion, Opinion, Signal, worse
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.readers.cards import card_notes
from pyscheduler.readers.cards.card_notes import sentence, share, shown
from pyscheduler.readers.cards.signals import Signals

__all__ = ["opinion_of"]

Raw = Mapping[str, Any]

_UUID: Final = re.compile(r"GPU-[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}")
# NVSentinel cuts messages of conditions at 1024 characters (maxNodeConditionMessageLength of its chart): cards may be missing
# in one that is nearly as long.
_CUT_AT: Final = 1000
# Problems of one annotation that are told.
_TOLD_MAX: Final = 5


def opinion_of(raw: Raw, signals: Signals, uuids: Sequence[str] = ()) -> tuple[NodeOpinion, tuple[Finding, ...]]:
    """Return what a Node says of its cards, and what of it could not be understood. `uuids`: all its cards, if they are known."""
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    said = _Said(uuids)
    said.texts({**(meta.get("labels") or {}), **(meta.get("annotations") or {})}, signals.labels)
    said.conditions(status.get("conditions") or (), signals.conditions)
    said.taints(spec.get("taints") or (), signals.taints)
    return said.opinion() if said.anything else SAYS_NOTHING, tuple(said.findings)


class _Said:
    """What has been read of one Node."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self.anything = False
        self._uuids = uuids
        self.findings: list[Finding] = []
        self._every: Opinion | None = None
        self._cards: dict[str, Opinion] = {}
        self._repaired: Mapping[str, float] = {}

    def opinion(self) -> NodeOpinion:
        return NodeOpinion(self._every, self._cards, self._repaired)

    def texts(self, texts: Mapping[str, str], signals: Mapping[str, Signal]) -> None:
        """Take labels and annotations."""
        # In order: of equal opinions the first counts, in every process the same.
        for key in sorted(signals.keys() & texts.keys()):
            self._text(signals[key], texts[key])
        if card_notes.KEY in texts:
            self._note(texts[card_notes.KEY])

    def conditions(self, conditions: Iterable[Raw], signals: Mapping[str, Signal]) -> None:
        """Take conditions. One that names the cards by UUID is of these alone."""
        for condition in conditions:
            signal = signals.get(condition.get("type", ""))
            value = signal.values.get(str(condition.get("status")).lower()) if signal else None
            if signal and value is not None:
                message = condition.get("message") or ""
                words = f"{_who(signal)} says {signal.key}: {message or condition.get('reason') or condition.get('status')}"
                self._take(Opinion(value, sentence(words)), _named(message))

    def taints(self, taints: Iterable[Raw], signals: Mapping[str, Signal]) -> None:
        """Take taints."""
        for taint in taints:
            signal = signals.get(taint.get("key", ""))
            value = signal.values.get(str(taint.get("effect")).lower()) if signal else None
            if signal and value is not None:
                words = f"{_who(signal)} keeps pods off its node: taint {signal.key}={taint.get('value') or ''}"
                self._take(Opinion(value, sentence(words)))

    def _text(self, signal: Signal, text: str) -> None:
        if not text:
            return
        value = _value(signal, text)
        if value is None:
            form = ", ".join(signal.values) if signal.values else "a number from 0 to 1"
            what = f"label or annotation {signal.key} says {text[:60]!r}, which is none of {form}: it does not count"
            remedy = "set it anew, or say in capacity.evidence of the configuration what the value means"
            self.findings.append(Finding("evidence-unknown", what, remedy))
        else:
            self._take(Opinion(value, sentence(f"{_who(signal)} says {text} of its node: {signal.key}")))

    def _note(self, text: str) -> None:
        opinion, problems = card_notes.read(text)
        problems += self._unknown(opinion)
        if opinion.every:
            self._take(opinion.every)
        for uuid, each in opinion.cards.items():
            self._take(each, (uuid,))
        self._repaired = opinion.repaired
        self.anything |= bool(opinion.repaired)
        rest = len(problems) - _TOLD_MAX
        for problem in problems[:_TOLD_MAX]:
            what = f"annotation {card_notes.KEY}: {problem}{f' ({rest} more like it)' if rest > 0 else ''}"
            self.findings.append(Finding("evidence-unusable", what, "write it anew", severity=Severity.ERROR))

    def _unknown(self, opinion: NodeOpinion) -> list[str]:
        """Return which cards are named that the node does not have, as far as its cards are known."""
        if not self._uuids:
            return []
        named = dict.fromkeys((*opinion.cards, *opinion.repaired))
        strange = [name for name in named if name not in self._uuids and name != ALL_CARDS]
        return [f"{shown(name)} is none of the cards of this node: write {self._meant(name)}" for name in strange]

    def _meant(self, name: str) -> str:
        """Return the card that may be meant: in other letters, or without what UUIDs begin with."""
        alike = [uuid for uuid in self._uuids if uuid.lower().removeprefix("gpu-") == name.lower().removeprefix("gpu-")]
        return alike[0] if alike else f"a UUID of its node document, such as {self._uuids[0]}"

    def _take(self, opinion: Opinion, uuids: Collection[str] = ()) -> None:
        """Take what is said of these cards; of all, if none is named. That all is well says nothing."""
        if opinion.value >= 1:
            return
        self.anything = True
        if not uuids:
            self._every = worse(self._every, opinion)
        for uuid in uuids:
            self._cards[uuid] = worse(self._cards.get(uuid), opinion) or opinion


def _who(signal: Signal) -> str:
    return signal.who or "the cluster"


def _value(signal: Signal, text: str) -> float | None:
    if signal.values:
        return signal.values.get(text.lower())
    try:
        return share(float(text))
    except ValueError:
        return None


def _named(message: str) -> tuple[str, ...]:
    """Return the cards that a message names; none, if some of its parts names none, for that may be of any."""
    if len(message) >= _CUT_AT:
        return ()
    parts = [_UUID.findall(part) for part in message.split(";") if part.strip()]
    return tuple(uuid for part in parts for uuid in part) if all(parts) else ()
