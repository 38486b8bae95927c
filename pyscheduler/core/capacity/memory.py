"""What of a card outlives the process: by UUID, in a bounded number of whole numbers and strings of JSON.

Of a card's loads those are kept in which it worked most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.breakers import SlowBreaker
from pyscheduler.core.capacity.burdens import Burden
from pyscheduler.core.capacity.faults import Fault, Faults
from pyscheduler.core.capacity.load import CELLS
from pyscheduler.core.capacity.load_means import LoadMeans
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.readings import Readings
from pyscheduler.core.capacity.repairs import Repairs
from pyscheduler.core.capacity.speed import Speed
from pyscheduler.core.capacity.states import BADNESS, State, States

__all__ = ["VERSION", "check", "joined", "recall", "remember"]

VERSION: Final = 1
_LOADS_MAX: Final = 8
# Logarithms of clocks and means of burdens are kept to so many parts.
_PARTS: Final = 100_000
# Below this many busy seconds a mean is not worth its place.
_LEAST_S: Final = 60.0
# What changes of these while nobody looks is an event, too; a driver that is loaded anew meanwhile shows in that of energy.
_VALUES: Final = {
    "xid": Quantity.LAST_XID,
    "xids": Quantity.XID_FATAL,
    "dbes": Quantity.ECC_DBE,
    "energy": Quantity.ENERGY_J,
}
# What is of one piece: how fast a card is, and where it stands.
_SPEED: Final = ("busy", "slower", "pods", "lately", "loads", "burdens")
_STATE: Final = ("state", "since", "slow", "spared", "word", "returns", "hold", "released")
# Where 0 says something else than nothing.
_FROM_0: Final = frozenset((*_VALUES, "lately"))
# What a timer of the state machine has counted is not kept: a suspect begins anew.
_KEPT: Final = (State.HEALTHY, State.DEGRADED, State.PROBATION, State.FAILED)


def remember(
    row: int,
    readings: Readings,
    states: States,
    faults: Faults,
    speed: Speed,
    repairs: Repairs,
    breaker: SlowBreaker,
    seen_at: float,
) -> dict[str, Any]:
    """Return what is kept of one card."""
    state = State(int(states.state[row]))
    entry: dict[str, Any] = {
        # Not the second after: what comes next is newer.
        "seen": _whole(np.floor(seen_at)),
        "busy": _whole(speed.rows.busy_s[row]),
        "slower": int(speed.rows.slower[row]),
        "pods": int(speed.rows.pods[row]),
        "lately": _whole(speed.rows.lately[row] * _PARTS),
        "state": int(state if state in _KEPT else State.UNKNOWN),
        "since": _whole(states.since[row]),
        "slow": int(states.slow[row]),
        "spared": int(state is State.DEGRADED and states.slow[row] and not breaker.kept_out[row]),
        "word": int(states.by_word[row] and state in (State.DEGRADED, State.FAILED)),
        "returns": int(states.returns[row]),
        "hold": _whole(states.hold_s[row]),
        "released": _whole(states.released_at[row]),
        "found": int(faults.found[row]),
        "event": _whole(faults.event_at[row]),
        "repaired": _whole(repairs.at[row]),
        **{name: _whole(readings.value[row, quantity.value]) for name, quantity in _VALUES.items()},
        "loads": _loads(row, speed),
        "burdens": _burdens(row, speed),
    }
    return {name: value for name, value in entry.items() if value not in (None, 0, []) or (value == 0 and name in _FROM_0)}


def check(identity: str, entry: Any) -> dict[str, Any]:
    """Return an entry if it can be recalled.

    Raises
    ------
    ValueError
        If it is not one that `remember` made.

    """
    if not isinstance(entry, Mapping):
        raise ValueError(f"the memory of card {identity} is {str(entry)[:60]}: remove it")  # noqa: TRY004 (what was stored is bad)
    for name, width, most in (("loads", 7, CELLS), ("burdens", 3, len(Burden))):
        if not _are_rows(entry.get(name, []), width, most):
            raise ValueError(f"the memory of card {identity} has {name} of another form: remove it")
    if not all(_is_whole(value) for name, value in entry.items() if name not in {"loads", "burdens"}):
        raise ValueError(f"the memory of card {identity} holds what is no whole number: remove it")
    if entry.get("state", State.UNKNOWN) not in {*_KEPT, State.UNKNOWN} or not 0 <= entry.get("found", 0) <= sum(Fault):
        raise ValueError(f"the memory of card {identity} has a state or faults that there are not: remove it")
    return dict(entry)


def joined(before: Mapping[str, Any], since: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a card of which an entry is read late, and of which another was made since without it.

    Where it stands is the worse of both, its speed that of more work. Counters are those of before: what came on top is new.
    An entry of before a repair counts no more; else a repair that was told since takes effect on both, at the next poll.
    """
    if since.get("repaired", -1) >= before.get("seen", 0):
        return dict(since)
    state = since if _badness(since) > _badness(before) else before
    speed = since if since.get("busy", 0) > before.get("busy", 0) else before
    of_one = {*_STATE, *_SPEED, "repaired"}
    entry = {name: value for name, value in {**since, **before}.items() if name not in of_one}
    for names, chosen in ((_STATE, state), (_SPEED, speed), (("repaired",), before)):
        entry |= {name: chosen[name] for name in names if name in chosen}
    entry["found"] = before.get("found", 0) | since.get("found", 0)
    if "event" in since:
        entry["event"] = max(since["event"], before.get("event", since["event"]))
    return entry


def recall(
    entry: Mapping[str, Any],
    row: int,
    readings: Readings,
    states: States,
    faults: Faults,
    speed: Speed,
    repairs: Repairs,
    breaker: SlowBreaker,
    latest: float,
) -> None:
    """Put back what was kept into the row of the card. `latest`: the time of the last poll; what is later is of a wrong clock."""
    readings.heard[row] = min(entry.get("seen", -np.inf), latest)
    for name, quantity in _VALUES.items():
        if name in entry:
            readings.value[row, quantity.value] = entry[name]
            readings.time[row, quantity.value] = min(entry.get("seen", 0), latest)
    speed.rows.busy_s[row] = entry.get("busy", 0)
    speed.rows.slower[row] = bool(entry.get("slower", 0))
    speed.rows.pods[row] = entry.get("pods", 0)
    speed.rows.lately[row] = entry.get("lately", np.nan) / _PARTS
    states.state[row] = entry.get("state", int(State.UNKNOWN))
    states.since[row] = entry.get("since", np.nan)
    states.slow[row] = bool(entry.get("slow", 0))
    states.by_word[row] = bool(entry.get("word", 0))
    states.returns[row] = bool(entry.get("returns", 0))
    breaker.kept_out[row] = states.slow[row] and not entry.get("spared", 0)
    states.hold_s[row] = entry.get("hold", 0)
    states.released_at[row] = entry.get("released", -np.inf)
    faults.found[row] = entry.get("found", 0)
    faults.event_at[row] = entry.get("event", -np.inf)
    faults.code_before[row] = entry.get("xid", np.nan)
    repairs.at[row] = entry.get("repaired", -np.inf)
    for cell, *pairs in entry.get("loads", ()):
        for means, mean, weight in zip(_tables(speed), pairs[::2], pairs[1::2], strict=True):
            means.weight[row, cell] = weight
            means.mean[row, cell] = mean / _PARTS if weight else np.nan
    for burden, mean, weight in entry.get("burdens", ()):
        speed.burdens.mean[row, burden] = mean / _PARTS
        speed.burdens.weight[row, burden] = weight


def _badness(entry: Mapping[str, Any]) -> int:
    return BADNESS[State(entry.get("state", State.UNKNOWN))]


def _are_rows(rows: Any, width: int, most: int) -> bool:
    """Tell whether these are rows of whole numbers, the first of each below `most`."""
    return isinstance(rows, list) and all(
        isinstance(row, list) and len(row) == width and all(map(_is_whole, row)) and 0 <= row[0] < most for row in rows
    )


def _is_whole(value: Any) -> bool:
    # More than a float holds to the last digit none of them is.
    return isinstance(value, int) and abs(value) < 1 << 53


def _tables(speed: Speed) -> tuple[LoadMeans, LoadMeans, LoadMeans]:
    return speed.history, speed.peer_means, speed.recent


def _loads(row: int, speed: Speed) -> list[list[int]]:
    """Return for each load its cell, then mean and weight of each table."""
    total = sum((means.weight[row] for means in _tables(speed)), np.zeros(CELLS))
    most = np.argsort(-total, kind="stable")[:_LOADS_MAX]
    return [[int(cell), *_pairs(row, cell, speed)] for cell in sorted(most[total[most] >= _LEAST_S])]


def _pairs(row: int, cell: int, speed: Speed) -> list[int]:
    pairs = []
    for means in _tables(speed):
        weight = round(float(means.weight[row, cell]))
        pairs += [round(float(means.mean[row, cell]) * _PARTS) if weight else 0, weight]
    return pairs


def _burdens(row: int, speed: Speed) -> list[list[int]]:
    mean: NDArray[np.float64] = speed.burdens.mean[row]
    weight: NDArray[np.float64] = speed.burdens.weight[row]
    kept = np.flatnonzero((weight >= _LEAST_S) & ~np.isnan(mean))
    return [[int(index), round(float(mean[index]) * _PARTS), round(float(weight[index]))] for index in kept]


def _whole(value: float) -> int | None:
    return round(float(value)) if np.isfinite(value) else None
