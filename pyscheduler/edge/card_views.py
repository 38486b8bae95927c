"""The capacity of cards as Inspect shows it: filtered, counted, and in pages that fit into a message."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.config import Mode
from pyscheduler.core.capacity.states import State
from pyscheduler.core.capacity.table import CardCapacity
from pyscheduler.edge.codec import BadRequest
from pyscheduler.edge.pb.v1 import inspect_pb2 as pb

__all__ = ["CardSource", "CardViews"]

# A card is some 300 bytes, and gRPC takes messages of 4 MiB.
PAGE_MAX: Final = 5000
_BAD: Final = frozenset((State.SUSPECT, State.DEGRADED, State.PROBATION, State.FAILED))


class _Collected(Protocol):
    @property
    def problems(self) -> Sequence[str]:
        """Why the poll is not complete."""


class _Polled(Protocol):
    """What the last poll has come to."""

    @property
    def collected(self) -> _Collected | None:
        """How it went, None if nothing could be asked."""

    @property
    def failure(self) -> str:
        """Why nothing could be asked."""

    @property
    def frozen(self) -> bool:
        """Whether states stand still."""


class CardSource(Protocol):
    """Where cards are known."""

    def cards(self) -> Sequence[CardCapacity]:
        """Return all cards. It may take a moment."""

    def status(self) -> _Polled | None:
        """Return what the last poll has come to, None before the first."""

    def age_s(self) -> float:
        """Return the age of the newest sample, -1 before the first."""


class CardViews:
    """Answers ListCards.

    Parameters
    ----------
    source
        Where cards are known.
    mode
        How they are judged.
    url
        Of Prometheus; empty without one.
    """

    def __init__(self, source: CardSource, mode: Mode, url: str) -> None:
        self._source = source
        self._mode = mode
        self._url = url

    def page(self, request: pb.ListCardsRequest) -> pb.ListCardsResponse:
        """Return the page that is asked for. A token is the last card of the page before: cards may come and go between two.

        Without a Prometheus there is nothing to tell before others say something of a card.
        """
        after = _card_of(request.page_token)
        size = min(request.page_size or PAGE_MAX, PAGE_MAX)
        everyone = sorted(self._source.cards(), key=lambda card: card.card)
        if not self._url and not everyone:
            return pb.ListCardsResponse()
        wanted = [card for card in everyone if _is_wanted(card, request) and (after is None or card.card > after)]
        shown = wanted[:size]
        return pb.ListCardsResponse(
            status=self._status(everyone),
            cards=[_card(card) for card in shown],
            next_page_token=json.dumps(shown[-1].card) if len(shown) < len(wanted) else "",
        )

    def _status(self, cards: Sequence[CardCapacity]) -> pb.CapacityStatus:
        polled, age = self._source.status(), self._source.age_s()
        return pb.CapacityStatus(
            mode=self._mode.value,
            url=self._url,
            polled=polled is not None,
            frozen=polled is not None and polled.frozen,
            open_breakers=self._open_breakers(cards),
            age_seconds=age if age >= 0 else None,
            problems=_problems(polled),
            counts=_counts(cards),
        )

    def _open_breakers(self, cards: Iterable[CardCapacity]) -> list[str]:
        # In classic mode whole nodes are kept out, and nothing is spared.
        if self._mode is Mode.CLASSIC:
            return []
        return sorted({card.model for card in cards if card.state is State.DEGRADED and not card.excluded and not card.unlocated})


def _problems(polled: _Polled | None) -> Sequence[str]:
    if polled is None:
        return ()
    return [polled.failure] if polled.failure else polled.collected.problems if polled.collected else ()


def _card_of(token: str) -> CardKey | None:
    """Return the card that a page token names."""
    if not token:
        return None
    try:
        node, uuid, mig = json.loads(token)
        return CardKey(str(node), str(uuid), str(mig))
    except (ValueError, TypeError) as cause:
        raise BadRequest(f"page_token: {token!r} is none of ours; pass next_page_token of the page before") from cause


def _is_wanted(card: CardCapacity, request: pb.ListCardsRequest) -> bool:
    if request.node not in ("", card.card.node):
        return False
    return not request.only_bad or card.excluded or card.unlocated or card.state in _BAD or card.health < 1


def _counts(cards: Iterable[CardCapacity]) -> list[pb.CardCount]:
    there: Counter[tuple[str, State]] = Counter()
    excluded: Counter[tuple[str, State]] = Counter()
    for card in cards:
        there[card.model, card.state] += 1
        excluded[card.model, card.state] += card.excluded
    return [
        pb.CardCount(model=model, state=_name(state), cards=there[model, state], excluded=excluded[model, state])
        for model, state in sorted(there)
    ]


def _card(value: CardCapacity) -> pb.Card:
    return pb.Card(
        node=value.card.node,
        uuid=value.card.uuid,
        mig=value.card.mig,
        model=value.model,
        health=value.health,
        speed=value.speed,
        available=value.available,
        score=value.score,
        relative_speed=value.relative_speed,
        state=_name(value.state),
        since=value.since,
        excluded=value.excluded,
        evidence=value.evidence,
        age_seconds=value.age_s,
        confidence=value.confidence,
        timer_seconds=value.timer_s,
        timer_end_seconds=value.timer_end_s,
    )


def _name(state: State) -> str:
    return state.name.lower()
