"""Which exporters there are, whether they answer, how often they are scraped, and whether a card is scraped twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pyscheduler.cli.doctor_facts import Answers, Series
from pyscheduler.core.explain import plural
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.readers.cards.catalogue_entries import Vendor
from pyscheduler.readers.text.excerpt import excerpt
from pyscheduler.readers.text.parts import some

__all__ = ["duplicate_findings", "exporter_findings", "interval_findings", "is_new_name", "nothing_findings"]

# Names of DCGM exporter 4.9 and later end in their unit.
_NEW: Final = re.compile(r"DCGM_FI_\w+_(HERTZ|CELSIUS|BYTES|WATTS|JOULES_TOTAL|THROTTLE_SECONDS_TOTAL|RATIO)")
# A metric of AMD's exporter that it always has.
_AMD_MARK: Final = "gpu_gfx_activity"
# Labels that tell apart the members of a pair of Prometheus servers that scrape the same.
_REPLICAS: Final = frozenset((
    "prometheus_replica", "prometheus", "replica", "__replica__", "receive_replica", "receive", "monitor", "rule_replica",
))  # fmt: skip
# Labels that change with the pod that uses a card.
_OF_THE_POD: Final = frozenset((
    "pod", "namespace", "container", "pod_uid", "exported_pod", "exported_namespace", "exported_container", "job_id", "job_user",
    "job_partition", "hpc_job", "kfd_process_id",
))  # fmt: skip
# Longer than between two polls of the service, a fault is noticed later, and from then on cards count as late.
_SLACK: Final = 1.1
_DEPLOY: Final = "install DCGM exporter or AMD's device metrics exporter and let Prometheus scrape it (deploy/prometheus)"


def is_new_name(metric: str) -> bool:
    """Tell whether DCGM exporter uses this name from 4.9 on, and not before."""
    return _NEW.fullmatch(metric) is not None


def nothing_findings(answers: Answers) -> Iterator[Finding]:
    """Yield why there is no metric that is known."""
    prefix = _amd_prefix(answers)
    if prefix is not None:
        yield prefix
        return
    if answers.foreign:
        what = f"no metric that is known, but others that look like GPUs' ({some(answers.foreign)})"
        yield Finding("no-gpu-metrics", what, _DEPLOY, severity=Severity.ERROR)
        return
    yield from _down(answers)
    what = f"{answers.config.url} has no metric of a GPU"
    yield Finding("no-gpu-metrics", what, f"{_DEPLOY}; is it the Prometheus of this cluster?", severity=Severity.ERROR)


def exporter_findings(answers: Answers) -> Iterator[Finding]:
    """Yield which exporters there are, and which of their targets are down."""
    cards: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for one in answers.series:
        cards.setdefault((one.job, _kind(one)), set()).add(one.card)
    for (job, kind), seen in sorted(cards.items()):
        yield Finding("exporter", f"job {excerpt(job) or 'none'}: {plural(len(seen), 'card')}, {kind}", severity=Severity.NOTE)
    yield from _down(answers)
    prefix = _amd_prefix(answers)
    if prefix is not None:
        yield prefix


def _kind(one: Series) -> str:
    if one.vendor is Vendor.AMD:
        return "AMD's device metrics exporter"
    return "DCGM exporter 4.9 or later" if is_new_name(one.metric) else "DCGM exporter with the names up to 4.8"


def _down(answers: Answers) -> Iterator[Finding]:
    for job, targets in sorted(answers.targets.items()):
        if targets.down:
            what = f"{targets.down:,} of {plural(targets.all, 'target')} of job {excerpt(job)} cannot be scraped"
            yield Finding("targets-down", what, "see the page Targets of Prometheus for the reason of each")


def _amd_prefix(answers: Answers) -> Finding | None:
    """Return what to do about names of AMD's exporter that begin otherwise."""
    own = f"{answers.config.amd_prefix}{_AMD_MARK}"
    other = next((name for name in answers.foreign if name.endswith(_AMD_MARK) and name != own), None)
    if other is None:
        return None
    prefix = other.removesuffix(_AMD_MARK)
    what = f"AMD's exporter puts {excerpt(prefix)!r} before its names ({excerpt(other)}), and metrics.amdPrefix is {answers.config.amd_prefix!r}"
    return Finding("amd-prefix", what, f'set metrics.amdPrefix: "{prefix}"', severity=Severity.ERROR)


def interval_findings(answers: Answers) -> Iterator[Finding]:
    """Yield how often cards are scraped."""
    ours = answers.config.interval_s
    for job, seconds in sorted(answers.intervals.items()):
        what = f"job {excerpt(job) or 'none'} is scraped every {seconds:.0f} s, and the service polls every {ours:.0f} s"
        if seconds > 2 * ours * _SLACK:
            yield Finding("scrape-interval", what, f"set scrape_interval: {ours:.0f}s for this job")
        else:
            yield Finding("scrape-interval", what, severity=Severity.NOTE)


def duplicate_findings(answers: Answers) -> Iterator[Finding]:
    """Yield why cards have more than one series of the same metric."""
    alike: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for one in answers.series:
        if one.uuid:
            alike.setdefault((one.metric, *one.card), []).append(one.labels)
    pairs: Counter[tuple[str, ...]] = Counter()
    twice: Counter[tuple[str, ...]] = Counter()
    for sets in alike.values():
        differing = _differing(sets) - _OF_THE_POD
        if differing and differing <= _REPLICAS:
            pairs[tuple(sorted(differing))] += 1
        elif differing:
            twice[tuple(sorted(differing))] += 1
    for labels, number in sorted(pairs.items()):
        what = (
            f"{plural(number, 'card')} have a series from each of several Prometheus servers (they differ in {', '.join(labels)})"
        )
        remedy = "set metrics.url to what deduplicates them (Thanos Query with its replica label, or one server); they count once, and cost twice"
        yield Finding("replicas", what, remedy)
    for labels, number in sorted(twice.items()):
        what = f"{plural(number, 'card')} are scraped more than once (their series differ in {', '.join(labels)})"
        yield Finding("scraped-twice", what, "remove all ServiceMonitors or scrape jobs of the exporter but one")


def _differing(sets: Sequence[Mapping[str, str]]) -> set[str]:
    labels = {label for said in sets for label in said}
    return {label for label in labels if len({said.get(label) for said in sets}) > 1}
