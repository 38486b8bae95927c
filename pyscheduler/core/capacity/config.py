"""Every threshold of capacity. Where a figure has a source, it stands beside it; all others are starting values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from pyscheduler.core.capacity.opinions import Signal

__all__ = [
    "AvailabilityConfig",
    "BreakerConfig",
    "BusyConfig",
    "CapacityConfig",
    "FaultConfig",
    "Mode",
    "SpeedConfig",
    "StateConfig",
]


class Mode(Enum):
    """Which scheme decides."""

    LAYERED = "layered"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True)
class AvailabilityConfig:
    """Layer A: what is free now.

    Attributes
    ----------
    decay_factor
        Per interval.
    history_s
        Older samples do not count.
    spike
        A jump by more than this counts only if the next sample confirms it.
    sm_weight, memory_weight
        How much the two free shares count.
    exponent
        How much A of a card that no pod has counts in the score.
    """

    decay_factor: float = 0.9
    history_s: float = 600.0
    spike: float = 0.25
    sm_weight: float = 0.7
    memory_weight: float = 0.3
    exponent: float = 0.3


@dataclass(frozen=True, slots=True)
class FaultConfig:
    """Layer H.

    Attributes
    ----------
    harmless_xids
        Codes that an application causes: those that NVIDIA's device plugin ignores (internal/rm/health.go), and 109.
    warning
        H of a card that may be bad.
    xid_s
        How long a fatal XID counts where only the exporter is known to have been started anew since.
    """

    harmless_xids: tuple[int, ...] = (13, 31, 43, 45, 68, 109)
    warning: float = 0.8
    xid_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class BusyConfig:
    """When a sample tells of speed.

    Attributes
    ----------
    active
        Share of the time in which the card must have worked.
    power
        Share of the power limit that it must draw.
    low_clock
        A clock below this share of the highest is that of a pause, ...
    low_samples
        ... unless so many come one after the other.
    dead_active, dead_load, dead_samples
        A profiler is dead that shows less than `dead_active` while utilization or power is above `dead_load`, in so many
        samples one after the other.
    """

    active: float = 0.5
    power: float = 0.4
    low_clock: float = 0.5
    low_samples: int = 10
    dead_active: float = 0.01
    dead_load: float = 0.5
    dead_samples: int = 3


@dataclass(frozen=True, slots=True)
class SpeedConfig:
    """Layer I. Half-lives count the time in which the card is busy.

    Attributes
    ----------
    peer_r0
        A ratio to the peers that gives 0: with 0.70 a card 10.5 % slower is at the threshold of 0.65.
    own_r0
        The same against the card's own history: with 0.80 a drop of 7 % is at the threshold.
    mad_widths
        The cut against peers is at least so many standard deviations below their median.
    quorum
        Peers that there must be.
    peer_half_life_s, recent_half_life_s, history_half_life_s
        Of what is compared with peers, of what is compared with the card's history, and of that history.
    peer_busy_s, own_busy_s
        Busy time that there must be before the card is judged by its peers, and by its history.
    recent_busy_s
        Decayed busy time that the latest must have for the comparison with its history.
    like_load_s
        Busy time at like load that both sides of a comparison need.
    load_busy_s
        Busy time at one load counts half from here on: one long job is no better a witness than several short ones.
    pod_busy_s
        Busy time after which a pod has shown how fast the card is under it.
    pods_differ
        By so much of a drop one pod alone is not believed: jobs of one load differ.
    moved
        A card that lately ran slower than its history by this does not change it: else it would forget what it was.
    lately_half_life_s
        What "lately" means.
    means_half_life_s
        Of throttling, link width, temperatures and errors.
    hw_thermal, sw_thermal, power_brake
        Share of the busy time, held down for this reason, that gives 0. Of `sw_thermal` what is more than the peers have.
    throttle_floor
        Less is noise.
    weak
        How much weak evidence (temperatures, replays) can lower the score, never the threshold's side.
    hot_c, replay_decades, cap
        What gives the worst weak evidence: degrees over the peers; powers of ten of errors per hour; share of the busy time
        at the power cap over the peers.
    refresh_s
        How often the peers' medians are computed anew.
    """

    peer_r0: float = 0.70
    own_r0: float = 0.80
    mad_widths: float = 3.0
    quorum: int = 5
    peer_half_life_s: float = 6 * 3600.0
    recent_half_life_s: float = 4 * 3600.0
    history_half_life_s: float = 72 * 3600.0
    peer_busy_s: float = 3 * 3600.0
    own_busy_s: float = 6 * 3600.0
    recent_busy_s: float = 3600.0
    like_load_s: float = 600.0
    load_busy_s: float = 3600.0
    pod_busy_s: float = 1800.0
    pods_differ: float = 0.035
    moved: float = 0.04
    lately_half_life_s: float = 600.0
    means_half_life_s: float = 1800.0
    hw_thermal: float = 0.10
    sw_thermal: float = 0.50
    power_brake: float = 0.05
    throttle_floor: float = 0.01
    weak: float = 0.1
    hot_c: float = 30.0
    replay_decades: float = 4.0
    cap: float = 0.5
    refresh_s: float = 300.0


@dataclass(frozen=True, slots=True)
class StateConfig:
    """The state machine.

    Attributes
    ----------
    degrade_samples
        Samples below the threshold, beside the stabilization window.
    recover_threshold, recover_s, recover_samples
        What an excluded card must reach, for how long and in how many samples, to be tried again.
    probation_s
        How long it must be busy then without a relapse.
    relapse_s
        Excluded again within this time, `recover_s` doubles; it is never more than this.
    """

    degrade_samples: int = 3
    recover_threshold: float = 0.72
    recover_s: float = 300.0
    recover_samples: int = 5
    probation_s: float = 1800.0
    relapse_s: float = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class BreakerConfig:
    """When the fleet is to be doubted less than the detector.

    Attributes
    ----------
    slow_share
        At most this share of the cards of a model is kept out for slowness. Cards with a fault do not count.
    silent_share
        If more than this share of the cards that reported are silent, states freeze: it is Prometheus.
    late_s, unknown_s
        Age of the newest sample from which on a card is late, and unknown.
    gone_s
        Silent for longer, a card is no longer missed.
    forget_s
        After this nothing is known of it.
    """

    slow_share: float = 0.2
    silent_share: float = 0.3
    late_s: float = 75.0
    unknown_s: float = 180.0
    gone_s: float = 1800.0
    forget_s: float = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class CapacityConfig:
    """All of it.

    Attributes
    ----------
    interval_s
        Seconds from poll to poll.
    threshold
        A card whose H times I stays below it for `window_s` is kept out; in classic mode a node, by its A.
    score_weight
        How finely scores count between nodes that are alike in links: 1 in steps of 0.05, 0 not at all.
    evidence
        By what else, beside what is known, nodes say how good their cards are.
    """

    mode: Mode = Mode.LAYERED
    interval_s: float = 30.0
    threshold: float = 0.65
    window_s: float = 120.0
    availability: AvailabilityConfig = field(default_factory=AvailabilityConfig)
    faults: FaultConfig = field(default_factory=FaultConfig)
    busy: BusyConfig = field(default_factory=BusyConfig)
    speed: SpeedConfig = field(default_factory=SpeedConfig)
    states: StateConfig = field(default_factory=StateConfig)
    breakers: BreakerConfig = field(default_factory=BreakerConfig)
    score_weight: float = 1.0
    evidence: tuple[Signal, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if not self.interval_s > 0:
            raise ValueError(f"interval_s is {self.interval_s}: write seconds greater than 0")
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold is {self.threshold}: write a number between 0 and 1, such as 0.65")
        if not self.threshold <= self.states.recover_threshold <= 1:
            raise ValueError(
                f"recover_threshold is {self.states.recover_threshold}: write a number between threshold"
                f" ({self.threshold}) and 1, or a card would be tried again while it is too slow"
            )
        if not self.window_s >= 0:
            raise ValueError(f"window_s is {self.window_s}: write seconds, 0 or more")
