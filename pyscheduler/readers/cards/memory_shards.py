"""The memory of all cards to shards and back: lines of JSON, packed with gzip.

The first line of a shard is its version, each other one a card: ``{"card": UUID, ...}`` with what
`core.capacity.memory` keeps of it. Shards one after the other are one file that zcat shows whole. 10,000 cards are 2.9 MB,
half of what they are unpacked; to take them apart takes a third of a second, which is why a worker process does both.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyscheduler.core.capacity import memory

__all__ = ["SHARDS_MAX", "Shards", "pack", "shard_name", "unpack"]

# Names to what is packed.
Shards = Mapping[str, bytes]

SHARDS_MAX: Final = 64
# Cards of one shard: 0.6 MB of the 1 MiB of a ConfigMap at most.
_CARDS_MAX: Final = 2000
# Cards of all shards; those that were not seen for longest are left out. A shard has 1,560 of them then, give or take 160.
_ALL_CARDS_MAX: Final = 100_000
# A sixth of the time of the usual level, for a tenth more bytes.
_LEVEL: Final = 1
# Bytes of a line, and of all lines of a shard: many times what there is.
_LINE_MAX: Final = 1 << 16
_TEXT_MAX: Final = 1 << 28
# "lately" is a logarithm, and "repaired" is what somebody wrote. No other number of a card is below 0, nor are the weights of its
# loads and burdens.
_NOT_PLAIN: Final = frozenset(("lately", "repaired", "loads", "burdens"))
# Problems of one shard that are told each.
_TOLD_MAX: Final = 3


def shard_name(index: int) -> str:
    """Return the name of a shard, which its ConfigMap has too."""
    return f"pyscheduler-cards-{index}"


def pack(remembered: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the shards of what `Capacity.memory` gave. The same memory gives the same bytes."""
    cards = remembered["cards"]
    names = sorted(cards)
    if len(names) > _ALL_CARDS_MAX:
        names = sorted(sorted(names, key=lambda name: -cards[name].get("seen", 0))[:_ALL_CARDS_MAX])
    count = _count(names)
    lines: list[list[str]] = [[json.dumps({"version": remembered["version"]})] for _ in range(count)]
    for name in names:
        lines[_index(name, count)].append(json.dumps({"card": name, **cards[name]}, separators=(",", ":")))
    return {shard_name(index): _packed(text) for index, text in enumerate(lines)}


def unpack(shards: Shards) -> tuple[dict[str, Any], list[str]]:
    """Return what `Capacity.restore` takes, and what could not be read: a line that is wrong does not count, the others do."""
    cards: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for where, packed in shards.items():
        found = _Shard(packed)
        for name, entry in found.cards():
            # A card may stand in an old shard too.
            if name not in cards or cards[name].get("seen", 0) < entry.get("seen", 0):
                cards[name] = entry
        more = found.problem_count - len(found.problems)
        problems += [f"{where}: {problem}" for problem in found.problems]
        problems += [f"{where}: {more} problems more like these"] if more else []
    return {"version": memory.VERSION, "cards": cards}, problems


def _count(names: list[str]) -> int:
    """Return how many shards there are to be: a power of two, so that their number seldom changes."""
    count = 1
    while count < SHARDS_MAX and max(Counter(_index(name, count) for name in names).values(), default=0) > _CARDS_MAX:
        count *= 2
    return count


def _index(name: str, count: int) -> int:
    """Return in which shard a card is: by its name alone, so that others that come or go do not move it."""
    return zlib.crc32(name.encode(errors="surrogatepass")) % count


def _packed(lines: list[str]) -> bytes:
    # Without the time: the same lines are the same bytes.
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), _LEVEL, mtime=0)


class _Shard:
    """One shard as it is read."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        # By the version that was read last; None before the first.
        self._readable: bool | None = None
        # The first problems, and how many there are.
        self.problems: list[str] = []
        self.problem_count = 0

    def cards(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each card that can be read."""
        number = 0
        try:
            for number, line in enumerate(self._lines(), 1):
                try:
                    found = self._card(json.loads(line))
                except (ValueError, RecursionError) as cause:
                    self._tell(f"line {number} is left out: {str(cause)[:200]}")
                else:
                    if found:
                        yield found
        except (OSError, EOFError, zlib.error) as cause:
            self._tell(f"what follows cannot be unpacked ({cause}): it is left out")
        else:
            if not number:
                self._tell("there is nothing in it: what was known of its cards is not read")

    def _tell(self, problem: str) -> None:
        self.problem_count += 1
        if len(self.problems) < _TOLD_MAX:
            self.problems.append(problem)

    def _lines(self) -> Iterator[bytes]:
        size = 0
        with gzip.GzipFile(fileobj=io.BytesIO(self._packed)) as file:
            while line := file.readline(_LINE_MAX):
                size += len(line)
                if size > _TEXT_MAX:
                    self._tell(f"what follows {_TEXT_MAX >> 20} MiB is left out: no shard is so large")
                    return
                yield line

    def _card(self, raw: Any) -> tuple[str, dict[str, Any]] | None:
        """Return the card of a line, None if the line is a version or belongs to one that cannot be read."""
        if not isinstance(raw, dict):
            raise ValueError("it is no card")  # noqa: TRY004 (what was stored is bad)
        if "version" in raw:
            self._readable = raw["version"] == memory.VERSION
            if not self._readable:
                raise ValueError(f"its version is {raw['version']!r}, this program reads {memory.VERSION}, so its cards are too")
            return None
        name = raw.pop("card", None)
        if not isinstance(name, str) or not name:
            raise ValueError("it names no card")
        if self._readable is None:
            raise ValueError("no version stands before it")
        return (name, _checked(name, raw)) if self._readable else None


def _checked(name: str, raw: Any) -> dict[str, Any]:
    entry = memory.check(name, raw)
    rows = (*entry.get("loads", ()), *entry.get("burdens", ()))
    # Behind the cell of a load or the number of a burden stand means and weights by turns.
    weights = (weight for row in rows for weight in row[2::2])
    if any(value < 0 for value in (*(entry[key] for key in entry if key not in _NOT_PLAIN), *weights)):
        raise ValueError(f"the memory of card {name} holds a number below 0: remove it")
    return entry
