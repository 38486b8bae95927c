"""Long runs of the machine: events by the roll of dice, told again and cut down to what is needed where one fails."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.oracle.books.draws import Dice, Script, pick
from tests.oracle.books.ending import end_all
from tests.oracle.books.events import EVENTS
from tests.oracle.books.service import Violation
from tests.oracle.books.world import World

__all__ = ["Failure", "Step", "run"]

# By what the weights are multiplied in one world, for common events and for rare ones: some watches are slow, some networks
# are bad, and some things never happen.
_COMMON = 30
_MOODS = ((1, 4, 4, 4, 8, 8), (0, 0, 4, 4, 4, 4, 4, 4, 4, 16))
_TRIES_MAX = 1000

# How often a failing trace is replayed to cut it down.
_REPLAYS_MAX = 6000


class Step(NamedTuple):
    """One event, and what was drawn for it."""

    event: int
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Failure:
    """What failed, as plain as it could be made."""

    seed: int
    steps: tuple[Step, ...]
    story: str

    def __str__(self) -> str:
        return f"seed {self.seed}, cut down to {len(self.steps)} steps:\n{self.story}"


def run(seeds: Sequence[int], steps: int) -> tuple[Counter[str], int]:
    """Run a world of so many steps for each seed, and end each: nothing may be held then.

    Returns
    -------
    counts, steps
        How often what happened in all worlds, and how many steps they took together.

    Raises
    ------
    AssertionError
        If something is wrong; the text is that of a `Failure`.

    """
    counts: Counter[str] = Counter()
    taken = 0
    for seed in seeds:
        dice = Dice(seed)
        first, trace = Step(-1, ()), list[Step]()
        try:
            world = World(dice)
            first = Step(-1, tuple(dice.rolled))
            lots = _lots(dice)
            for _ in range(steps):
                trace.append(_step(world, dice, lots))
            dice.rolled.clear()
            end_all(world)
        except Exception as cause:
            # What failed is the step that is not in the trace, or the end.
            partial = (*trace, Step(dice.event, tuple(dice.rolled))) if len(trace) < steps else tuple(trace)
            raise AssertionError(str(_explain(seed, (first, *partial), _kind(cause)))) from cause
        counts += world.counts
        taken += len(trace)
    return counts, taken


def _lots(dice: Dice) -> list[int]:
    """Return numbers of events, as often as they are to be drawn in one world."""
    moods = [pick(dice, _MOODS[event.weight < _COMMON]) for event in EVENTS]
    return [number for number, event in enumerate(EVENTS) for _ in range(event.weight * moods[number])]


def _step(world: World, dice: Dice, lots: Sequence[int]) -> Step:
    """Have something happen that can happen now; anything, where none of the lots can."""
    number = 0
    for tried in range(2 * _TRIES_MAX):
        number = pick(dice, lots if tried < _TRIES_MAX else range(len(EVENTS)))
        if EVENTS[number].ready(world):
            break
    dice.rolled.clear()
    dice.event = number
    EVENTS[number].run(world, dice)
    return Step(number, tuple(dice.rolled))


def _kind(cause: Exception) -> str:
    """Return what is broken, in words that are the same for every trace that breaks it."""
    return cause.promise if isinstance(cause, Violation) else type(cause).__name__


def _explain(seed: int, steps: Sequence[Step], kind: str) -> Failure:
    first, rest = steps[0], list(steps[1:])

    def fails(chosen: Sequence[Step]) -> bool:
        cause, _ = replay([first, *chosen])
        return cause is not None and _kind(cause) == kind

    small = _cut_down(rest, fails) if fails(rest) else rest
    cause, story = replay([first, *small], told=True)
    ended = "the failure does not come again" if cause is None else "".join(traceback.format_exception(cause)[-3:])
    return Failure(seed, tuple(small), "\n".join([*story, ended]))


def replay(steps: Sequence[Step], *, told: bool = False) -> tuple[Exception | None, list[str]]:
    """Repeat steps, leaving out what cannot happen. Return what fails, and the story if it is `told`."""
    world = None
    try:
        world = World(Script(steps[0].numbers), told=told)
        for number, numbers in steps[1:]:
            event = EVENTS[number]
            if event.ready(world):
                world.say(event.words)
                event.run(world, Script(numbers))
        world.say("the end")
        end_all(world)
    except Exception as cause:  # noqa: BLE001  whatever it is, it is what is looked for
        return cause, (world.story if world else None) or []
    return None, world.story or []


def _cut_down(steps: list[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Leave out steps, and draw the plainest numbers, as long as the failure does not go away."""
    budget = _Budget(fails)
    while budget.left:
        before = steps
        steps = _plainer(_fewer(steps, budget), budget)
        if steps == before:
            break
    return steps


class _Budget:
    """So many replays, and no more: then nothing fails."""

    def __init__(self, fails: Callable[[Sequence[Step]], bool]) -> None:
        self._fails = fails
        self.left = _REPLAYS_MAX

    def fails(self, steps: Sequence[Step]) -> bool:
        self.left -= 1
        return self.left > 0 and self._fails(steps)


def _fewer(steps: list[Step], budget: _Budget) -> list[Step]:
    """Leave out halves, quarters and so on, down to single steps."""
    size = max(1, len(steps) // 2)
    while size:
        start = 0
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            if budget.fails(fewer):
                steps = fewer
            else:
                start += size
        size //= 2
    return steps


def _plainer(steps: list[Step], budget: _Budget) -> list[Step]:
    for at in range(len(steps)):
        for place, number in enumerate(steps[at].numbers):
            event, numbers = steps[at]
            plain = Step(event, (*numbers[:place], 0, *numbers[place + 1 :]))
            if number and budget.fails([*steps[:at], plain, *steps[at + 1 :]]):
                steps = [*steps[:at], plain, *steps[at + 1 :]]
    return steps
