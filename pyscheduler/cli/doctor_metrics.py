"""What the service would take from one poll: which quantities cards lack, how old samples are, and whether profilers live."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from pyscheduler.cli.doctor_facts import Answers
from pyscheduler.cli.doctor_series import is_new_name
from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.config import CapacityConfig
from pyscheduler.core.capacity.poll import Poll
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.core.capacity.readings import SKEW_S
from pyscheduler.core.explain import plural
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.readers.cards.catalogue_entries import Vendor
from pyscheduler.readers.text.parts import some

__all__ = ["age_findings", "metric_findings", "profiler_findings"]

_Q = Quantity
# What cards are judged by, and what it is for where that is not plain.
_KEY: Final[Mapping[Vendor, Mapping[Quantity, tuple[str, str]]]] = {
    Vendor.NVIDIA: {
        _Q.SM_CLOCK_HZ: ("the SM clock", "without it no speed is known"),
        _Q.ENGINE_ACTIVE: ("engine activity", "without it utilization must do, which takes waiting for work"),
        _Q.SM_ACTIVE: ("SM activity", "it counts most in what is free"),
        _Q.TENSOR_ACTIVE: ("activity of the tensor cores", "without it loads are told apart by power alone"),
        _Q.DRAM_ACTIVE: ("activity of the memory", "without it loads are told apart by power alone"),
        _Q.FB_USED: ("used memory", ""),
        _Q.POWER_W: ("power", ""),
        _Q.POWER_LIMIT_W: ("the power limit", "without it cards of another limit are taken for peers"),
        _Q.SM_CLOCK_MAX_HZ: ("the highest SM clock", "without it a pause is hard to tell from a slow card"),
        _Q.UTILIZATION: ("utilization", "without it a dead profiler is hard to tell"),
        _Q.TEMP_C: ("temperature", ""),
        _Q.HW_THERMAL_S: ("time slowed by the hardware for heat", ""),
        _Q.SW_THERMAL_S: ("time slowed by the driver for heat", ""),
        _Q.POWER_BRAKE_S: ("time slowed by the power brake", ""),
        _Q.XID_FATAL: ("XIDs by code", ""),
        _Q.ECC_DBE: ("double-bit errors", ""),
        _Q.REMAP_FAILED: ("failed remaps of memory rows", ""),
        _Q.HEALTH: ("DCGM's health checks", ""),
        _Q.ENERGY_J: ("energy", "without it a driver that was loaded anew may not be seen, and a card that has failed stays out"),
        _Q.PCIE_WIDTH: ("the width of the PCIe link", ""),
    },
    Vendor.AMD: {
        _Q.SM_CLOCK_HZ: ("the system clock", "without it no speed is known"),
        _Q.ENGINE_ACTIVE: ("activity", "without it no card counts as busy"),
        _Q.FB_USED: ("used memory", ""),
        _Q.POWER_W: ("power", ""),
        _Q.TEMP_C: ("temperature", ""),
        _Q.HEALTH: ("health", ""),
        _Q.ECC_DBE: ("uncorrectable errors", ""),
        _Q.HW_THERMAL_FRACTION: ("time slowed for heat", ""),
    },
}
_MAKERS: Final = {Vendor.NVIDIA: "NVIDIA", Vendor.AMD: "AMD"}
# Clocks of two machines may differ by this.


def metric_findings(answers: Answers) -> Iterator[Finding]:
    """Yield what the cards of each vendor lack."""
    evidence = answers.config.evidence
    if evidence and evidence not in answers.names:
        what = f"metrics.evidence names {evidence}, which has no series"
        yield Finding("evidence-absent", what, "mend its exporter, or take the setting out")
    poll = _poll(answers)
    if poll is None:
        return
    of_uuid = {one.uuid: one.vendor for one in answers.series}
    # Instances of MIG have fewer metrics by their nature.
    whole = [(index, _vendor(card.uuid, of_uuid)) for index, card in enumerate(poll.cards) if not card.mig]
    for vendor in _KEY:
        cards = [index for index, of_card in whole if of_card is vendor]
        if cards:
            yield from _of_vendor(vendor, cards, poll, answers)


def _vendor(uuid: str, of_uuid: Mapping[str, Vendor]) -> Vendor | None:
    """Return whose a card is. AMD's without a UUID go by serial number and die, or by their index."""
    return Vendor.AMD if uuid.startswith("index:") else of_uuid.get(uuid) or of_uuid.get(uuid.partition("/")[0])


def _of_vendor(vendor: Vendor, cards: Iterable[int], poll: Poll, answers: Answers) -> Iterator[Finding]:
    everyone = set(cards)
    absent: list[str] = []
    events: list[str] = []
    for quantity, (noun, why) in _KEY[vendor].items():
        names = _names(vendor, quantity, answers)
        told = f"{noun} ({names[0]}{f'; {why}' if why else ''})"
        lacking = everyone - set(np.asarray(poll.samples[quantity].cards).tolist() if quantity in poll.samples else ())
        if not any(name in answers.names for name in names):
            # Of these nothing is there either before the first event.
            (events if _is_event(vendor, quantity, answers) else absent).append(told)
        elif lacking:
            nodes = sorted({poll.cards[index].node for index in lacking})
            what = f"{len(lacking)} of {plural(len(everyone), f'{_MAKERS[vendor]} card')} lack {told}, on {some(nodes)}"
            yield Finding("metric-partial", what, _remedy(vendor, answers))
    if absent:
        yield Finding("metric-absent", f"no {_MAKERS[vendor]} card has {'; '.join(absent)}", _remedy(vendor, answers))
    if events:
        what = f"no {_MAKERS[vendor]} card has shown {'; '.join(events)}: nothing has happened yet, or it is not exported"
        yield Finding("no-event", what, _remedy(vendor, answers), severity=Severity.NOTE)


def _names(vendor: Vendor, quantity: Quantity, answers: Answers) -> list[str]:
    """Return the metrics of a quantity; those of the exporter's generation first."""
    names = [m.name for s in answers.sources if s.quantity is quantity and s.vendor is vendor for m in s.metrics]
    new = _is_new(answers)
    return sorted(names, key=lambda name: is_new_name(name) is not new)


def _is_event(vendor: Vendor, quantity: Quantity, answers: Answers) -> bool:
    return any(s.from_first_event for s in answers.sources if s.quantity is quantity and s.vendor is vendor)


def _is_new(answers: Answers) -> bool:
    return any(map(is_new_name, answers.names))


def _remedy(vendor: Vendor, answers: Answers) -> str:
    if vendor is Vendor.AMD:
        return "add the fields to GPUConfig.Fields of the exporter's config.json"
    versions = sorted({"4.9" if is_new_name(one.metric) else "4.8" for one in answers.series if one.vendor is vendor})
    files = " or ".join(f"dcgm-counters-{version}.csv" for version in versions)
    return (
        f"give the exporter deploy/prometheus/{files}{', by its version' if len(versions) > 1 else ''}: its default list has less"
    )


def age_findings(answers: Answers, capacity: CapacityConfig) -> Iterator[Finding]:
    """Yield how old the newest sample of each card is."""
    poll = _poll(answers)
    if poll is None:
        return
    newest = np.full(len(poll.cards), -np.inf)
    for column in poll.samples.values():
        np.fmax.at(newest, np.asarray(column.cards, dtype=np.int64), column.times)
    ages = answers.now - newest[np.isfinite(newest)]
    if not len(ages):
        return
    if ages.min() < -SKEW_S:
        what = f"samples are of {-ages.min():.0f} s in the future: the clocks differ, and such samples are not used"
        yield Finding(
            "clock-skew", what, "set the clocks of this machine and of Prometheus by the same source", severity=Severity.ERROR
        )
    # A card without any sample has no age.
    late = np.flatnonzero(np.isfinite(newest) & (answers.now - newest > capacity.breakers.late_s)).tolist()
    if late:
        nodes = sorted({poll.cards[index].node for index in late})
        what = f"the newest samples of {plural(len(late), 'card')} are up to {ages.max():.0f} s old, on {some(nodes)}"
        unknown = f"From {capacity.breakers.unknown_s:.0f} s on such cards are unknown"
        remedy = f"is the exporter slow or gone, or is the scrape interval too long? {unknown}"
        yield Finding("samples-old", what, remedy)
    else:
        what = f"newest samples of {plural(len(ages), 'card')}: {max(ages.min(), 0):.0f} to {max(ages.max(), 0):.0f} s old"
        yield Finding("samples", what, severity=Severity.NOTE)


def profiler_findings(answers: Answers, capacity: CapacityConfig) -> Iterator[Finding]:
    """Yield cards whose profiler shows nothing while they work."""
    poll = _poll(answers)
    if poll is None:
        return
    profiled = np.fmax(_values(poll, _Q.ENGINE_ACTIVE), _values(poll, _Q.SM_ACTIVE))
    limits = np.array([fact.power_limit_w or np.nan for fact in poll.facts], dtype=np.float64)
    load = np.fmax(_values(poll, _Q.UTILIZATION), _values(poll, _Q.POWER_W) / limits) if len(limits) else profiled
    dead = np.flatnonzero((profiled < capacity.busy.dead_active) & (load > capacity.busy.dead_load))
    if len(dead):
        cards: list[CardKey] = [poll.cards[index] for index in dead.tolist()]
        what = f"the profiler shows nothing of {plural(len(cards), 'card')} at work, on {some(sorted({card.node for card in cards}))}"
        remedy = (
            "restart the exporter there; does it have the capability SYS_ADMIN, and does no other profiler (nsys, ncu) hold the"
            " card? Meanwhile utilization must do"
        )
        yield Finding("profiler-dead", what, remedy)


def _values(poll: Poll, quantity: Quantity) -> np.ndarray:
    values = np.full(len(poll.cards), np.nan)
    if quantity in poll.samples:
        column = poll.samples[quantity]
        values[np.asarray(column.cards, dtype=np.int64)] = column.values
    return values


def _poll(answers: Answers) -> Poll | None:
    return answers.collected.polls[-1] if answers.collected and answers.collected.polls else None
