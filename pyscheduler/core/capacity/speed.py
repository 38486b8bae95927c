"""Layer I: how fast each card is when it works.

The smallest of the strong parts counts: the clock against peers, and against the card's own history, at like load;
throttling; the width and speed of its link. All of it is of busy time, so a card that rests neither heals nor sickens.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.burdens import Burden, Burdens, Weak, by_node, over_peers
from pyscheduler.core.capacity.config import SpeedConfig
from pyscheduler.core.capacity.load import CELLS, Load
from pyscheduler.core.capacity.load_means import LoadMeans
from pyscheduler.core.capacity.peers import PeerGroup, compare, counted, mean_of
from pyscheduler.core.capacity.poll import Floats
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.readings import Bools, Readings
from pyscheduler.core.capacity.rows import quotient

__all__ = ["Part", "Speed", "SpeedRows"]


class Part(IntEnum):
    """What layer I is the smallest of."""

    PEERS = 0
    OWN = 1
    HW_THERMAL = 2
    SW_THERMAL = 3
    POWER_BRAKE = 4
    WIDTH = 5
    LINK_SPEED = 6


class SpeedRows:
    """What is judged of each card.

    Attributes
    ----------
    busy_s
        Busy time ever seen.
    allowed
        The logarithm of the clock that each cell of load allows its peers; NaN where too few have been there.
    slope
        How far the card's speed shows in that clock (see `PeerGroup`).
    ceiling
        The logarithm of its highest clock: a card that runs at it shows no more of its speed. NaN where unknown.
    usual
        How fast it has been by that, logarithm; NaN where it has no peers: then its own clocks are what is usual.
    lately
        By how much its clock lately differed from what is usual, logarithm; NaN where unknown.
    drift
        How far what is recent is from what is usual, logarithm, however little there is of it.
    slower
        Whether its clock lately was lower than usual by more than chance: then its history does not change.
    against_peers, against_own
        Ratio to the median of its peers, and to its own history; NaN where there is too little evidence.
    cut
        The ratio to its peers from which on it is too slow.
    pod_s
        Busy time with the pod that it has.
    pods
        Since it became slower than usual, how many pods have shown that; 2 at once if it did so under one pod.
    peers
        With how many cards it was compared.
    excuse
        By how much its peers moved as well, logarithm, 0 or less.
    parts
        The strong parts, a column for each of `Part`: 1 good, 0 bad.
    weak
        What weak evidence leaves, a column for each of `Weak`.
    """

    def __init__(self, count: int) -> None:
        self.busy_s = np.zeros(count)
        self.allowed = np.full((count, CELLS), np.nan)
        self.slope = np.ones((count, CELLS))
        self.ceiling = np.full(count, np.nan)
        self.usual = np.full(count, np.nan)
        self.lately = np.full(count, np.nan)
        self.drift = np.full(count, np.nan)
        self.slower = np.zeros(count, dtype=np.bool_)
        self.pod_s = np.zeros(count)
        self.pods = np.zeros(count, dtype=np.int64)
        self.against_peers = np.full(count, np.nan)
        self.against_own = np.full(count, np.nan)
        self.cut = np.full(count, np.nan)
        self.peers = np.zeros(count, dtype=np.int64)
        self.excuse = np.zeros(count)
        self.parts = np.ones((count, len(Part)))
        self.weak = np.ones((count, len(Weak)))


class Speed:
    """Layer I of all cards.

    Attributes
    ----------
    peer_means, recent, history
        Clocks by load: for the comparison with peers; the latest; those before, which a drop does not change.
    burdens
        Throttling and the like.
    rows
        What is judged.
    """

    def __init__(self, config: SpeedConfig, threshold: float) -> None:
        self._config = config
        self._threshold = threshold
        self._groups: list[PeerGroup] = []
        self._refreshed_at = -np.inf
        self.peer_means, self.recent, self.history = LoadMeans(0), LoadMeans(0), LoadMeans(0)
        self.burdens = Burdens(0)
        self.rows = SpeedRows(0)

    def all_rows(self) -> tuple[object, ...]:
        """Return all that has one row per card."""
        return self.peer_means, self.recent, self.history, self.burdens, self.rows

    @staticmethod
    def empty_rows(count: int) -> tuple[object, ...]:
        """Return empty rows of the same kinds, in the same order."""
        return LoadMeans(count), LoadMeans(count), LoadMeans(count), Burdens(count), SpeedRows(count)

    def observe(self, readings: Readings, load: Load, moved: Bools, longest_s: float) -> None:
        """Take what is new of the cards that work.

        Parameters
        ----------
        readings, load
            After this poll.
        moved
            Cards that another pod has since the last poll.
        longest_s
            A sample stands for the time since the one before, but no longer than this.

        """
        clock = Quantity.SM_CLOCK_HZ
        span = readings.span[:, clock.value]
        measured = load.steady & readings.is_new(clock) & (span > 0) & (readings.last(clock) > 0)
        seconds = np.where(measured, np.minimum(np.nan_to_num(span), longest_s), 0.0)
        rows = np.flatnonzero(measured)
        self.rows.pod_s[moved] = 0.0
        highest = readings.last(Quantity.SM_CLOCK_MAX_HZ)
        self.rows.ceiling = np.log(np.where(highest > 0, highest, np.nan))
        self._take(rows, load.cell[rows], np.log(readings.last(clock)[rows]), seconds[rows])
        self.burdens.observe(readings, measured, seconds, self._config)

    def _take(self, rows: NDArray[np.int64], cells: NDArray[np.int64], values: Floats, spans: Floats) -> None:
        """Take the logarithms of clocks, at these loads for so many seconds."""
        self.rows.busy_s[rows] += spans
        self.peer_means.add(rows, cells, values, spans, self._config.peer_half_life_s)
        self.recent.add(rows, cells, values, spans, self._config.recent_half_life_s)
        learns = self._learns(rows, cells, values, spans)
        self.history.add(rows[learns], cells[learns], values[learns], spans[learns], self._config.history_half_life_s)
        self.rows.pod_s[rows] += spans

    def _learns(self, rows: NDArray[np.int64], cells: NDArray[np.int64], values: Floats, spans: Floats) -> Bools:
        """Tell whose history these samples may change: not that of cards that lately ran slower than it."""
        moved = (values - self._expected(rows)[np.arange(len(rows)), cells]) / self.rows.slope[rows, cells]
        before = self.rows.lately[rows]
        share = 1.0 - np.exp2(-spans / self._config.lately_half_life_s)
        after = np.where(np.isnan(before), moved, before + share * (moved - before))
        self.rows.lately[rows] = np.where(np.isnan(moved), before, after)
        # It ends at half of what it begins at, so that it does not come and go.
        bar = np.log1p(np.where(self.rows.slower[rows], -self._config.moved / 2, -self._config.moved))
        slower = self.rows.lately[rows] - self.rows.excuse[rows] < bar
        slower &= self.rows.busy_s[rows] >= self._config.own_busy_s
        self._begin_anew(rows, slower)
        self._count_pods(rows, slower, spans)
        self.rows.slower[rows] = slower
        return ~slower

    def _count_pods(self, rows: NDArray[np.int64], slower: Bools, spans: Floats) -> None:
        """Count the pods under which a card was slower: one alone may be of a job that runs unlike others."""
        long, before = self._config.pod_busy_s, self.rows.pod_s[rows]
        begins = slower & ~self.rows.slower[rows]
        shown = slower & (before < long) & (before + spans >= long)
        pods = np.where(begins, np.where(before >= long, 2, 0), self.rows.pods[rows])
        self.rows.pods[rows] = np.where(slower, pods + shown, 0)

    def _begin_anew(self, rows: NDArray[np.int64], slower: Bools) -> None:
        """Forget what is recent of cards whose speed has changed: it was before the change.

        One job that runs unlike others of its load is no change: what is recent then says already what it is to say.
        """
        was = self.rows.slower[rows]
        says_so = self.rows.drift[rows] < np.log1p(-self._config.moved)
        falls, rises = slower & ~was & ~says_so, ~slower & was & says_so
        self.recent.weight[rows[falls | rises]] = 0.0

    def _expected(self, rows: NDArray[np.int64]) -> Floats:
        """Return the logarithm of the clock at each load that is usual for each of these cards; NaN where it is not known."""
        by_peers = self.rows.allowed[rows] + self.rows.usual[rows, None] * self.rows.slope[rows]
        by_peers = np.where(by_peers > self.rows.ceiling[rows, None], self.rows.ceiling[rows, None], by_peers)
        seen = self.history.weight[rows] >= self._config.like_load_s
        by_itself = np.where(seen, self.history.mean[rows], np.nan)
        return np.where(np.isnan(self.rows.usual[rows, None]), by_itself, by_peers)

    def judge(self, groups: Sequence[NDArray[np.int64]], nodes: NDArray[np.int64], at: float, *, changed: bool) -> None:
        """Compare all cards: their groups of peers, and the node of each. `changed`: the groups are not those of before."""
        if changed or at - self._refreshed_at >= self._config.refresh_s:
            self._groups = [compare(self.peer_means, rows, self._config, self._threshold) for rows in groups]
            self._refreshed_at = at
        for group in self._groups:
            self._judge_by_peers(group)
        self._judge_by_own(groups)
        self._judge_by_burdens(groups)
        self._judge_by_link_speed(nodes)
        self.rows.weak = self.burdens.weak(groups, self._config)

    def _judge_by_peers(self, group: PeerGroup) -> None:
        rows = group.rows
        weight = self.peer_means.weight[rows]
        compared = self.peer_means.mean[rows] - group.allowed
        enough = np.where(np.isnan(compared), 0.0, weight).sum(axis=1) >= self._config.like_load_s
        enough &= (self.rows.busy_s[rows] >= self._config.peer_busy_s) & (group.judged > self._config.quorum)
        ratio = np.where(enough, np.exp(mean_of(compared, counted(weight, self._config), group.slope) - group.centre), np.nan)
        self.rows.against_peers[rows] = ratio
        self.rows.allowed[rows] = group.allowed
        self.rows.slope[rows] = group.slope
        history = counted(self.history.weight[rows], self._config)
        self.rows.usual[rows] = mean_of(self.history.mean[rows] - group.allowed, history, group.slope)
        self.rows.cut[rows] = group.cut
        self.rows.peers[rows] = group.judged
        r0 = (group.cut - self._threshold) / (1.0 - self._threshold)
        self.rows.parts[rows, Part.PEERS] = _part((ratio - r0) / (1.0 - r0))

    def _judge_by_own(self, groups: Sequence[NDArray[np.int64]]) -> None:
        difference = self.recent.mean - self._expected(np.arange(len(self.rows.busy_s)))
        self.rows.drift = mean_of(difference, counted(self.recent.weight, self._config), self.rows.slope)
        enough = np.where(np.isnan(difference), 0.0, self.recent.weight).sum(axis=1) >= self._config.recent_busy_s
        enough &= self.rows.busy_s >= self._config.own_busy_s
        moved = np.where(enough, self.rows.drift, np.nan)
        self._raise_history(moved)
        over = over_peers(moved, groups, self._config.quorum)
        # Where the peers ran slower, too, only what goes beyond that counts; where they ran faster it is no fault.
        self.rows.excuse = np.where(np.isnan(over), 0.0, np.minimum(0.0, moved - over))
        # Until enough is recent the last answer stands.
        doubt = np.where(self.rows.slower & (self.rows.pods < 2), np.log1p(self._config.pods_differ), 0.0)
        ratio = np.where(enough, np.exp(moved - self.rows.excuse + doubt), self.rows.against_own)
        self.rows.against_own = ratio
        self.rows.parts[:, Part.OWN] = _part((ratio - self._config.own_r0) / (1.0 - self._config.own_r0))

    def _raise_history(self, moved: Floats) -> None:
        """Let cards that became faster be held to it: those that were repaired."""
        rows = np.flatnonzero(moved > np.log1p(2 * self._config.moved))
        self.history.mean[rows] += moved[rows, None] * self.rows.slope[rows]
        self.rows.lately[rows] -= moved[rows]
        moved[rows] = 0.0

    def _judge_by_burdens(self, groups: Sequence[NDArray[np.int64]]) -> None:
        config, mean, parts = self._config, self.burdens.mean, self.rows.parts
        sw_thermal = over_peers(mean[:, Burden.SW_THERMAL], groups, config.quorum)
        sw_thermal = np.where(np.isnan(sw_thermal), 0.0, sw_thermal)
        for part, share, most in (
            (Part.HW_THERMAL, mean[:, Burden.HW_THERMAL], config.hw_thermal),
            (Part.SW_THERMAL, sw_thermal, config.sw_thermal),
            (Part.POWER_BRAKE, mean[:, Burden.POWER_BRAKE], config.power_brake),
        ):
            parts[:, part] = _part(1.0 - np.where(share < config.throttle_floor, 0.0, share) / most)
        width = mean[:, Burden.WIDTH]
        narrower = over_peers(width, groups, config.quorum)
        normal = np.where(np.isnan(narrower), 1.0, width - narrower)
        parts[:, Part.WIDTH] = _part(width / np.where(normal > 0, normal, 1.0))

    def _judge_by_link_speed(self, nodes: NDArray[np.int64]) -> None:
        """Compare with the other cards of the node: where all are slow, the host knows no faster generation."""
        speed = self.burdens.mean[:, Burden.GENERATION]
        self.rows.parts[:, Part.LINK_SPEED] = _part(quotient(speed, by_node(speed, nodes)))

    def gate(self) -> Floats:
        """Return I as the threshold sees it."""
        worst: Floats = self.rows.parts.min(axis=1)
        return worst

    def ranking(self) -> Floats:
        """Return how fast each card is to be taken for, 1 as fast as a good one: in place of I, which says how near it is to the cut.

        The smaller of the ratios to its peers and to its own history; a card held down, or with a slow link, as slow as the
        ratio to its peers that would be as near to the cut. Weak evidence takes off some more. One that is ahead of its peers
        counts as they do: pods that chase the fastest cards leave holes everywhere.
        """
        ratio = np.fmin(np.fmin(self.rows.against_peers, self.rows.against_own), 1.0)
        others: Floats = self.rows.parts[:, Part.OWN + 1 :].min(axis=1)
        weak: Floats = self.rows.weak.min(axis=1)
        speed: Floats = np.minimum(ratio, 1.0 - (1.0 - self._config.peer_r0) * (1.0 - others))
        return speed * (1.0 - self._config.weak * (1.0 - weak))

    def confidence(self) -> Floats:
        """Return how much is known of each card's speed: 1 from the busy time on that its own history needs."""
        known: Floats = np.minimum(1.0, self.rows.busy_s / self._config.own_busy_s)
        return known


def _part(values: Floats) -> Floats:
    """Return a part between 0 and 1; without evidence a card is good."""
    return np.clip(np.nan_to_num(values, nan=1.0), 0.0, 1.0)
