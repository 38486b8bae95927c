"""Why a card has its score, in one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.burdens import Burden, Weak
from pyscheduler.core.capacity.faults import Fault
from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.speed import Part, SpeedRows

__all__ = ["Evidence"]

_REPAIR: Final = (
    "load the driver anew, or say that it was repaired: repairedAt in the annotation pyscheduler.io/cards of its node"
)
_FAULTS: Final = (
    (Fault.XID, f"a fatal XID was reported; {_REPAIR}"),
    (Fault.ECC, f"a double-bit memory error was reported; {_REPAIR}"),
    (Fault.REMAP, "a row of its memory could not be remapped"),
    (Fault.HEALTH, "its health check does not pass"),
    (Fault.OUTSIDE, "others report it as bad"),
    (Fault.OLD_XID, "its last XID was fatal, and how old it is is not known"),
)
_HELD_DOWN: Final = (
    (Part.HW_THERMAL, Burden.HW_THERMAL, "too hot (hardware)"),
    (Part.SW_THERMAL, Burden.SW_THERMAL, "at its temperature limit"),
    (Part.POWER_BRAKE, Burden.POWER_BRAKE, "braked by its power supply"),
)
_WEAK: Final = {
    Weak.HEAT: "it is hotter than its peers",
    Weak.POWER_CAP: "it is at its power limit more than its peers",
    Weak.REPLAYS: "its PCIe link repeats packets",
    Weak.NVLINK_ERRORS: "its NVLinks have errors",
    Weak.GENERATION: "its PCIe link runs below its generation",
}
# From so many seconds on a time is told in minutes.
_MINUTES_FROM_S: Final = 120.0
# Weak evidence below this is worth a word.
_WORTH_A_WORD: Final = 0.5


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the sentences are made of.

    Attributes
    ----------
    found
        Flags of `Fault`.
    outside
        Who says what of a card, "" where nobody does.
    rows, burdens
        Of layer I.
    spared
        Cards that are slow and are handed out all the same.
    repaired
        Cards that were repaired: nothing is known of the time before.
    crowded
        In classic mode, cards whose node is no candidate.
    node_free, threshold
        What each card's node has free, NaN if it is not known now, and what it must have.
    silent, never_seen
        Cards that have been silent for too long; those that never had a series.
    out, by_word, failed, slow
        Cards that are out whatever their nodes have free; those that are suspect or out for what others say alone, that have
        failed, and that were too slow when they were taken out.
    waits_s
        Of cards that are out though nothing speaks against them now, for how long still; NaN of others.
    """

    found: NDArray[np.int64]
    outside: Sequence[str]
    rows: SpeedRows
    burdens: Floats
    spared: NDArray[np.bool_]
    repaired: NDArray[np.bool_]
    crowded: NDArray[np.bool_]
    node_free: Floats
    threshold: float
    silent: NDArray[np.bool_]
    never_seen: NDArray[np.bool_]
    out: NDArray[np.bool_]
    by_word: NDArray[np.bool_]
    failed: NDArray[np.bool_]
    slow: NDArray[np.bool_]
    waits_s: Floats

    def word(self, row: int) -> str:
        """Return in a word or two why a card is out."""
        if not self.out[row]:
            return "busy"
        if self.slow[row] and not self.failed[row]:
            return "slow"
        return "reported by others" if self.by_word[row] or self.found[row] == Fault.OUTSIDE else "faulty"

    def sentence(self, row: int) -> str:
        """Return what counts most."""
        if not np.isnan(self.waits_s[row]):
            return self._waits(row)
        for fault, words in _FAULTS:
            if self.found[row] & fault:
                return self.outside[row] if fault is Fault.OUTSIDE and self.outside[row] else words
        if self.crowded[row]:
            return self._crowded(row)
        if self.never_seen[row]:
            return "no series of it yet"
        worst = Part(int(self.rows.parts[row].argmin()))
        text = self._part(row, worst) if self.rows.parts[row, worst] < 1 else self._good(row)
        return f"{text}; it is handed out, for too many of its model look slow" if self.spared[row] else text

    def _waits(self, row: int) -> str:
        """Return what a card waits for that would be handed out otherwise."""
        left = _time(self.waits_s[row])
        if self.by_word[row]:
            return f"others no longer report it as bad: it is handed out again in {left}"
        if self.silent[row]:
            was = "had failed" if self.failed[row] else "was too slow" if self.slow[row] else "was faulty"
            return f"it {was} when it was last heard of: it is handed out again after {left} of good samples"
        if self.failed[row]:
            return f"it no longer shows a fault: it is handed out again after {left} more without one"
        if self.slow[row]:
            return f"it was too slow, and now {self._now(row)}: it is tried again after {left} more of such work"
        return f"it was faulty, and is well enough now: it is tried again after {left} more"

    def _now(self, row: int) -> str:
        text = self._against_peers(row)
        return text.replace("it ", "", 1) if text else "nothing shows it any more"

    def _crowded(self, row: int) -> str:
        if np.isnan(self.node_free[row]):
            return f"its node had less than {_percent(self.threshold)} free when it was last heard of"
        return f"its node has {_percent(self.node_free[row])} free, below {_percent(self.threshold)}"

    def _part(self, row: int, part: Part) -> str:
        if part is Part.PEERS:
            return self._against_peers(row)
        if part is Part.OWN:
            return f"it is {_percent(1 - self.rows.against_own[row])} slower than it was at like load"
        if part is Part.WIDTH:
            return f"its PCIe link has {_percent(self.burdens[row, Burden.WIDTH])} of its width"
        if part is Part.LINK_SPEED:
            return f"its PCIe link runs at {_percent(self.burdens[row, Burden.GENERATION])} of its speed"
        burden, words = next((burden, words) for of, burden, words in _HELD_DOWN if of is part)
        return f"in {_percent(self.burdens[row, burden])} of its busy time its clock was held down: {words}"

    def _against_peers(self, row: int) -> str:
        ratio, peers = self.rows.against_peers[row], self.rows.peers[row] - 1
        if np.isnan(ratio):
            return ""
        difference = f"{_percent(abs(1 - ratio))} {'slower' if ratio < 1 else 'faster'} than"
        if round(abs(1 - ratio) * 100) == 0:
            difference = "as fast as"
        return f"it is {difference} the median of its {peers} peers at like load"

    def _good(self, row: int) -> str:
        weak = Weak(int(self.rows.weak[row].argmin()))
        if self.rows.weak[row, weak] < _WORTH_A_WORD:
            return _WEAK[weak]
        if np.isnan(self.rows.against_peers[row]):
            hours = self.rows.busy_s[row] / 3600
            since = " since it was repaired" if self.repaired[row] else ""
            return f"nothing speaks against it; its speed is not known yet ({hours:.1f} busy hours{since})"
        return self._against_peers(row)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _MINUTES_FROM_S else f"{math.ceil(seconds / 60)} min"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
