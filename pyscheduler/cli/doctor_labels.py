"""Which labels of series name the nodes of the cluster, and what the others hold."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from pyscheduler.cli.doctor_facts import Answers, Fleet, Series
from pyscheduler.core.explain import plural
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.readers.text.excerpt import excerpt
from pyscheduler.readers.text.parts import some

__all__ = ["host", "label_findings"]

# What a scrape's own configuration can set from the pod that it scrapes.
_RELABEL: Final = (
    "let the scrape set the label `node` from __meta_kubernetes_pod_node_name (deploy/prometheus has the lines for both kinds of"
    " configuration)"
)
_EXAMPLES: Final = 3


def host(label: str, value: str) -> str:
    """Return what of a label's value may be the name or the address of a node: of ``instance`` the part before the port."""
    if label != "instance":
        return value
    before, colon, _ = value.rpartition(":")
    return before.strip("[]") if colon else value


def label_findings(answers: Answers, fleet: Fleet) -> Iterator[Finding]:
    """Yield what each label holds, and what to do where none names the node."""
    asked = answers.config.node_labels
    held = {label: _values(label, answers.series) for label in asked}
    for label, values in held.items():
        if values:
            yield Finding("node-label", _told(label, values, fleet), severity=Severity.NOTE)
    lost = [one for one in answers.series if not _nodes_of(one.labels, asked, fleet)]
    if lost and fleet.names:
        yield from _lost(lost, answers, fleet)
    yield from _contradictions(answers, fleet)


def _nodes_of(labels: Mapping[str, str], node_labels: Sequence[str], fleet: Fleet) -> dict[str, str]:
    """Return the nodes that labels name, by label."""
    said = {label: host(label, labels.get(label, "")) for label in node_labels}
    return {label: fleet.known_as[value] for label, value in said.items() if value in fleet.known_as}


def _values(label: str, series: Iterable[Series]) -> frozenset[str]:
    return frozenset(host(label, text) for one in series if (text := one.labels.get(label)))


def _told(label: str, values: frozenset[str], fleet: Fleet) -> str:
    found, wanted = _named(values, fleet), fleet.gpu_nodes.keys()
    others = sorted(values - fleet.known_as.keys())
    examples = ", ".join(f"{excerpt(value)!r}{_what_it_is(value, fleet)}" for value in others[:_EXAMPLES])
    rest = f"; {plural(len(others), 'value')} of no node, such as {examples}" if others else ""
    return f"label {label} names {len(found & wanted)} of the {plural(len(wanted), 'node')} with GPUs{rest}"


def _named(values: Iterable[str], fleet: Fleet) -> frozenset[str]:
    """Return the nodes that have one of these names or addresses."""
    return frozenset(fleet.known_as[value] for value in values if value in fleet.known_as)


def _what_it_is(value: str, fleet: Fleet) -> str:
    if value in fleet.shared:
        return " (an address of several nodes)"
    if "-exporter-" in value:
        return " (the exporter's own pod)"
    if _is_address(value):
        return " (an address of no node: of a pod?)"
    short, lowered = value.partition(".")[0], value.casefold()
    for name in sorted(fleet.names):
        if name.casefold() == lowered:
            return f" (in other letters than the node {name})"
        if name.partition(".")[0] == short:
            return f" (the node {name} with another domain, or none)"
    return ""


def _is_address(value: str) -> bool:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


def _lost(lost: Sequence[Series], answers: Answers, fleet: Fleet) -> Iterator[Finding]:
    """Tell of series that no label puts on a node."""
    cards = len({one.card for one in lost})
    jobs = some(sorted({one.job or "none" for one in lost}))
    if len(lost) == len(answers.series):
        what = "no label of any series names a node of this cluster: no card is known"
        remedy = f"{_remedy(lost, answers, fleet)}; or is it the Prometheus of another cluster?"
        yield Finding("no-node-matches", what, remedy, severity=Severity.ERROR)
        return
    what = f"series of {plural(cards, 'card')} are of no node of this cluster (job {jobs})"
    if fleet.gpu_nodes.keys() <= answers.cards.keys():
        yield Finding(
            "unknown-nodes", f"{what}: every node with GPUs has its own, so they are another cluster's", severity=Severity.NOTE
        )
    else:
        yield Finding("unknown-nodes", what, _remedy(lost, answers, fleet))


def _remedy(lost: Sequence[Series], answers: Answers, fleet: Fleet) -> str:
    """Return what to do: to name another label if one names the nodes, or else to have one set."""
    labels = dict.fromkeys(label for one in lost for label in one.labels)
    named = {label: len(_named(_values(label, lost), fleet)) for label in labels if label not in answers.config.node_labels}
    best = max(named, key=lambda label: named[label], default="")
    if best and named[best]:
        return f"set metrics.nodeLabels: [{', '.join((best, *answers.config.node_labels))}]: the label {best} names {plural(named[best], 'node')}"
    return _RELABEL


def _contradictions(answers: Answers, fleet: Fleet) -> Iterator[Finding]:
    """Tell of labels that name different nodes: the first counts, and it may be that of Prometheus or of a proxy."""
    found: dict[str, int] = {}
    for one in answers.series:
        named = _nodes_of(one.labels, answers.config.node_labels, fleet)
        if len(set(named.values())) > 1:
            pair = " but ".join(f"{label}={name!r}" for label, name in named.items())
            found.setdefault(pair, 0)
            found[pair] += 1
    if found:
        what = (
            f"labels of {plural(sum(found.values()), 'card')} name different nodes ({some(sorted(found))}): the first one counts"
        )
        yield Finding("labels-contradict", what, "put the label that is right first in metrics.nodeLabels")
