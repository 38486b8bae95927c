"""What the sensors of simulated cards show: from true speed, load and faults to readings. Arrays are by card and step."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tests.sim.faults import Effects

__all__ = ["BRAKE_BIT", "IDLE_BIT", "Conditions", "Hardware", "Readings", "readings", "warmed"]

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

# Bits of CLOCKS_EVENT_REASONS (dcgm_fields.h).
IDLE_BIT, CAP_BIT, SLOWDOWN_BIT, SW_THERMAL_BIT, HW_THERMAL_BIT, BRAKE_BIT = 0x1, 0x4, 0x8, 0x20, 0x40, 0x80
# A card that waits for the others of its job draws less power and clocks higher; a program that does nothing keeps the
# clock up, too.
WAITING_BOOST = 1.06
HELD_CLOCK, HELD_POWER = 0.99, 0.18
# Clock noise from sample to sample under load.
CLOCK_NOISE = 0.012
# Degrees above the inlet at full power; how fast a heat sink follows.
FULL_POWER_C = 44.0
WARMING_S = 150.0
# Dynamic power goes with more than the square of the clock, so a lower limit costs less clock than power.
LIMIT_EXPONENT = 0.4


@dataclass(frozen=True)
class Hardware:
    """What does not change: columns of one value per card. `place_c` is how much warmer its place is than the inlet."""

    max_clock_mhz: Floats
    idle_clock_mhz: Floats
    clock_step_mhz: Floats
    memory_clock_mhz: Floats
    idle_memory_clock_mhz: Floats
    limit_w: Floats
    limit_share: Floats
    idle_w: Floats
    memory_mib: Floats
    slowdown_c: Floats
    pcie_gen: Floats
    place_c: Floats


@dataclass
class Conditions:
    """What acts on the cards in each interval.

    Attributes
    ----------
    speed
        The card's own speed without faults: 1 for an average one.
    held
        A program is on the card.
    busy
        Share of the interval in which it works.
    clock, sensitivity, power, capped, sm, tensor, dram, memory
        As of the load (`loads.Load`), with the job's own factors.
    waiting
        Share of its busy time in which it waits for the slowest of its job.
    """

    speed: Floats
    held: Floats
    busy: Floats
    clock: Floats
    sensitivity: Floats
    power: Floats
    capped: Floats
    sm: Floats
    tensor: Floats
    dram: Floats
    memory: Floats
    waiting: Floats

    @staticmethod
    def idle(cards: int, steps: int) -> Conditions:
        """Return conditions in which nobody uses the cards."""
        found = Conditions(*(np.zeros((cards, steps), np.float32) for _ in fields(Conditions)))
        found.speed[:] = 1
        return found


@dataclass
class Readings:
    """The sensors of one interval. Shares are of the interval; counters follow from them.

    Attributes
    ----------
    sm_moment, tensor_moment
        The same activity as AMD's profiler sees it: for a millisecond.
    """

    clock_mhz: Floats
    memory_clock_mhz: Floats
    engine: Floats
    sm: Floats
    tensor: Floats
    dram: Floats
    sm_moment: Floats
    tensor_moment: Floats
    power_w: Floats
    settled_c: Floats
    memory_used_mib: Floats
    pcie_width: Floats
    pcie_gen: Floats
    reasons: Floats
    sw_thermal: Floats
    hw_thermal: Floats
    brake: Floats
    capped: Floats
    replays: Floats
    nvlink_errors: Floats


def readings(hardware: Hardware, now: Conditions, faults: Effects, inlet_c: Floats, rng: np.random.Generator) -> Readings:
    """Return what the sensors show. `inlet_c` is the temperature of the air, by step."""
    busy = np.where(faults.failed, 0.0, now.busy)
    works = rng.random(busy.shape) < busy
    braked = works & (rng.random(busy.shape) < faults.brake)
    watts = _power(hardware, now, faults, busy, rng)
    limited = np.clip(now.capped * rng.normal(1, 0.06, busy.shape), 0, 1) * busy
    return Readings(
        clock_mhz=_clock(hardware, now, faults, works, braked, rng),
        memory_clock_mhz=np.where(now.held > 0, hardware.memory_clock_mhz, hardware.idle_memory_clock_mhz),
        engine=np.clip(busy * rng.uniform(0.96, 1.0, busy.shape), 0, 1),
        sm=_activity(now.sm, busy, rng),
        tensor=_activity(now.tensor, busy, rng),
        dram=_activity(now.dram, busy, rng),
        sm_moment=_moment(now.sm, works, rng),
        tensor_moment=_moment(now.tensor, works, rng),
        power_w=watts,
        settled_c=_temperature(hardware, faults, busy, watts, inlet_c),
        memory_used_mib=np.where(now.held > 0, now.memory * hardware.memory_mib, 4.0).round(),
        pcie_width=16 * faults.lanes,
        pcie_gen=np.where(now.held > 0, hardware.pcie_gen, 1.0),
        reasons=_reasons(now, faults, works, braked, rng),
        sw_thermal=faults.sw_thermal * busy,
        hw_thermal=faults.hw_thermal * busy,
        brake=faults.brake * busy,
        capped=limited,
        replays=rng.poisson(np.where(faults.lanes < 1, 0.05, 0.0003), busy.shape).astype(float),
        nvlink_errors=rng.poisson(0.0002, busy.shape).astype(float),
    )


def _clock(hw: Hardware, now: Conditions, faults: Effects, works: Bools, braked: Bools, rng: np.random.Generator) -> Floats:
    """Return the clock at the moment of the sample: an instant, not a mean."""
    governed = hw.limit_share ** (LIMIT_EXPONENT * (now.sensitivity >= 1))
    share = now.clock * governed * (now.speed * faults.clock) ** now.sensitivity
    share = share * rng.normal(1, CLOCK_NOISE, works.shape)
    share = np.where(rng.random(works.shape) < now.waiting, share * WAITING_BOOST, share)
    share = np.where(braked, share / 2, share)
    idle = np.where(now.held > 0, HELD_CLOCK * hw.max_clock_mhz, hw.idle_clock_mhz)
    mhz = np.where(works, np.minimum(share, 1) * hw.max_clock_mhz, idle)
    return np.rint(mhz / hw.clock_step_mhz) * hw.clock_step_mhz


def _power(hw: Hardware, now: Conditions, faults: Effects, busy: Floats, rng: np.random.Generator) -> Floats:
    heat_limited = np.where(faults.sw_thermal > 0, faults.clock, 1.0) * (1 - faults.brake / 2)
    working = np.minimum(now.power * heat_limited * rng.normal(1, 0.015, busy.shape), 1.01) * hw.limit_w
    resting = np.where(now.held > 0, HELD_POWER * hw.limit_w, hw.idle_w) * rng.normal(1, 0.02, busy.shape)
    return busy * working + (1 - busy) * resting


def _activity(level: Floats, busy: Floats, rng: np.random.Generator) -> Floats:
    return np.clip(level * busy * rng.normal(1, 0.03, busy.shape), 0, 1)


def _moment(level: Floats, works: Bools, rng: np.random.Generator) -> Floats:
    return np.where(works, np.clip(level * rng.normal(1, 0.4, works.shape), 0, 1), 0)


def _temperature(hw: Hardware, faults: Effects, busy: Floats, watts: Floats, inlet_c: Floats) -> Floats:
    """Return where the temperature would settle. A card without enough cooling works at its limit."""
    cool = inlet_c + hw.place_c + FULL_POWER_C * watts / hw.limit_w
    return np.where((faults.sw_thermal > 0) & (busy > 0.5), np.maximum(cool, hw.slowdown_c), cool)


def _reasons(now: Conditions, faults: Effects, works: Bools, braked: Bools, rng: np.random.Generator) -> Floats:
    def share(of: Floats) -> Bools:
        return works & (rng.random(works.shape) < of)

    bits = np.where(now.held > 0, 0, IDLE_BIT)
    bits |= np.where(share(now.capped), CAP_BIT, 0)
    bits |= np.where(share(faults.sw_thermal), SW_THERMAL_BIT, 0)
    bits |= np.where(share(faults.hw_thermal), HW_THERMAL_BIT | SLOWDOWN_BIT, 0)
    return (bits | np.where(braked, BRAKE_BIT | SLOWDOWN_BIT, 0)).astype(float)


def warmed(before_c: Floats, settled_c: Floats, seconds: float) -> Floats:
    """Return the temperature after `seconds` on the way to where it settles."""
    return settled_c + (before_c - settled_c) * np.exp(-seconds / WARMING_S)
