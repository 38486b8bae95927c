"""Labels of series to cards: node, UUID and MIG instance.

An index is no identity. Only of AMD's cards that show neither UUID nor serial number (virtual machines) it must do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.findings import Finding
from pyscheduler.readers.cards.catalogue_entries import Vendor
from pyscheduler.readers.cards.metric_samples import Card, is_placeholder
from pyscheduler.readers.text.parts import some

__all__ = ["IDENTITY", "NODE_LABELS", "Cards", "LabelSets"]

# Where the name of the node may stand, the likeliest first; of "instance" the part before the port. Never "pod": behind
# Prometheus that is the exporter's own.
NODE_LABELS: Final = ("node", "Hostname", "hostname", "exported_hostname", "instance")
# What tells cards apart, and their model.
IDENTITY: Final = (
    "UUID", "gpu_uuid", "GPU_I_ID", "serial_number", "gpu_id", "gpu_partition_id", "gpu_compute_partition_type",
    "modelName", "card_model",
)  # fmt: skip

_MODELS: Final = ("modelName", "card_model")
# A card that is not partitioned (AMD's single partition mode).
_WHOLE: Final = ("", "spx")
# Without NODE_NAME the exporter calls its own pod the host.
_EXPORTER_POD: Final = "-exporter-"


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards of the label sets.

    Attributes
    ----------
    keys, models, vendors
        One of each per card.
    of_set
        For each label set the index of its card, -1 if it has none.
    findings
        Why some have none.
    """

    keys: list[CardKey]
    models: list[str]
    vendors: list[Vendor]
    of_set: NDArray[np.int64]
    findings: list[Finding]


@dataclass(slots=True)
class LabelSets:
    """The sets of labels that were seen, each once: a card repeats its own for every metric.

    Attributes
    ----------
    node_labels
        Where the name of the node may stand, the likeliest first.
    """

    node_labels: Sequence[str] = NODE_LABELS
    _numbers: dict[tuple[str, ...], int] = field(default_factory=dict)
    _labels: list[Mapping[str, str]] = field(default_factory=list)
    _vendors: list[Vendor] = field(default_factory=list)
    _places: dict[tuple[str, ...], int] = field(default_factory=dict)
    _place_of: list[int] = field(default_factory=list)

    def number(self, labels: Mapping[str, str], vendor: Vendor) -> int:
        """Return the number of a set of labels, of a series of this vendor's exporter."""
        # Names, then values: cheaper than pairs of them.
        said = (*labels, *labels.values())
        number = self._numbers.get(said)
        if number is None:
            number = self._numbers[said] = len(self._labels)
            self._labels.append(labels)
            self._vendors.append(vendor)
            self._place_of.append(self.place(labels))
        elif vendor is not Vendor.ANY:
            self._vendors[number] = vendor
        return number

    def place(self, labels: Mapping[str, str]) -> int:
        """Return the number of what a set says of the node: series that agree in it were scraped together."""
        return self._places.setdefault(tuple([labels.get(key, "") for key in self.node_labels]), len(self._places))

    def places(self) -> NDArray[np.int64]:
        """Return for each set the number of its place."""
        return np.array(self._place_of, dtype=np.int64)

    def cards(self, nodes: Mapping[str, str]) -> Cards:
        """Return the cards.

        Parameters
        ----------
        nodes
            As of `node_names`: names and addresses of the nodes that there are; with none any name counts.

        """
        read = [self._identity(labels, vendor, nodes) for labels, vendor in zip(self._labels, self._vendors, strict=True)]
        # Two dies of one card share its serial number.
        dies = Counter(die[:3] for die in {(i.node, i.serial, i.part, i.index) for i in read if i.serial})
        keys = [identity.key(dies) for identity in read]
        # In order, whichever query was answered first.
        table = {key: index for index, key in enumerate(sorted({key for key in keys if key is not None}))}
        of_set = np.array([-1 if key is None else table[key] for key in keys], dtype=np.int64)
        models, vendors = [""] * len(table), [Vendor.ANY] * len(table)
        for index, identity in zip(of_set, read, strict=True):
            if index >= 0:
                models[index] = models[index] or identity.model
                vendors[index] = identity.vendor
        return Cards(list(table), models, vendors, of_set, self._findings(read, of_set, nodes))

    def _identity(self, labels: Mapping[str, str], vendor: Vendor, nodes: Mapping[str, str]) -> _Identity:
        card = Card.of(labels)
        whole = labels.get("gpu_compute_partition_type", "").casefold() in _WHOLE
        return _Identity(
            node=self._node(labels, nodes),
            uuid=card.uuid or "",
            serial=card.serial or "",
            index=labels.get("gpu_id", "") if vendor is not Vendor.NVIDIA else "",
            part=card.mig or ("" if whole else labels.get("gpu_partition_id", "")),
            model=next((text for key in _MODELS if not is_placeholder(text := labels.get(key, ""))), ""),
            vendor=vendor,
        )

    def _node(self, labels: Mapping[str, str], nodes: Mapping[str, str]) -> str:
        for label in self.node_labels:
            name = _host(labels.get(label, "")) if label == "instance" else labels.get(label, "")
            if is_placeholder(name) or (not nodes and _EXPORTER_POD in name):
                continue
            if not nodes:
                return name
            if nodes.get(name):
                return nodes[name]
        return ""

    def _findings(self, read: Sequence[_Identity], of_set: NDArray[np.int64], nodes: Mapping[str, str]) -> list[Finding]:
        lost = [(labels, identity) for labels, identity, index in zip(self._labels, read, of_set, strict=True) if index < 0]
        astray = [labels for labels, identity in lost if not identity.node]
        nameless = [labels for labels, identity in lost if identity.node]
        found = []
        if astray:
            said = {f"{k}={labels[k]!r}" for labels in astray for k in self.node_labels if k in labels}
            what = f"{len(astray)} series are of no node that is known ({some(sorted(said)) or 'no label that names a node'})"
            what += _shared(astray, self.node_labels, nodes)
            remedy = (
                f"put the node's name in one of the labels {', '.join(self.node_labels)}, or name its label in metrics.nodeLabels"
            )
            found.append(Finding("metrics-without-node", what, remedy if nodes else ""))
        if nameless:
            what = f"{len(nameless)} series cannot be attributed to a card (no UUID or serial number): an index is no identity"
            found.append(Finding("metrics-without-card", what, "have the exporter add the label UUID (NVIDIA) or gpu_uuid (AMD)"))
        return found


@dataclass(frozen=True, slots=True)
class _Identity:
    """What a set of labels says; "" for what it does not."""

    node: str
    uuid: str
    serial: str
    index: str
    part: str
    model: str
    vendor: Vendor

    def key(self, dies: Mapping[tuple[str, str, str], int]) -> CardKey | None:
        uuid = self.uuid or self.serial
        if not self.uuid and dies.get((self.node, self.serial, self.part), 0) > 1:
            uuid = f"{self.serial}/{self.index}"
        if not uuid and self.index:
            uuid = f"index:{self.index}"
        return CardKey(self.node, uuid, self.part) if self.node and uuid else None


def _shared(astray: Sequence[Mapping[str, str]], node_labels: Sequence[str], nodes: Mapping[str, str]) -> str:
    """Return which addresses in these labels several nodes have."""
    values = {
        _host(labels[key]) if key == "instance" else labels[key] for labels in astray for key in node_labels if key in labels
    }
    shared = sorted(value for value in values if nodes.get(value) == "")
    return f"; several nodes have the same address: {some(shared)}" if shared else ""


def _host(instance: str) -> str:
    """Return the host of a target: 10.0.0.1:9400, [fd00::1]:9400, node-1."""
    host, colon, _ = instance.rpartition(":")
    return host.strip("[]") if colon else instance
