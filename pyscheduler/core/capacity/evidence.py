"""Why a card has its score, in one sentence."""

from __future__ import annotations

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
    """

    found: NDArray[np.int64]
    outside: Sequence[str]
    rows: SpeedRows
    burdens: Floats
    spared: NDArray[np.bool_]
    repaired: NDArray[np.bool_]

    def sentence(self, row: int) -> str:
        """Return what counts most."""
        for fault, words in _FAULTS:
            if self.found[row] & fault:
                return self.outside[row] if fault is Fault.OUTSIDE and self.outside[row] else words
        worst = Part(int(self.rows.parts[row].argmin()))
        text = self._part(row, worst) if self.rows.parts[row, worst] < 1 else self._good(row)
        return f"{text}; it is handed out, for too many of its model look slow" if self.spared[row] else text

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


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
