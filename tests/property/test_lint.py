"""Lint of any cluster: an answer and never an error, the same in every order; a fault that is put in is what is found."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from pyscheduler.core.fabric.place import NOWHERE, Place
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.lint import lint
from pyscheduler.core.machine.document import Gpu, NodeDocument
from pyscheduler.core.machine.links import UNKNOWN_LINK, Link
from pyscheduler.core.record import NodeRecord

# Few values, so that they meet.
TEXTS = st.sampled_from(["", "a", "b", "c", "[red]", "é\n"])
MAYBE = st.none() | TEXTS
LINKS = st.sampled_from([Link.parse(text) for text in ("NV18", "NV4", "XGMI", "PIX", "SYS", "?")])
FINDINGS = st.builds(Finding, TEXTS, TEXTS, TEXTS, TEXTS, st.sampled_from(Severity)) | st.builds(
    Finding, st.just("direction-mismatch"), TEXTS
)
GPUS = st.builds(Gpu, TEXTS, MAYBE, MAYBE, MAYBE, st.none() | st.integers(0, 3), MAYBE, st.booleans())


@st.composite
def documents(draw):
    gpus = tuple(draw(st.lists(GPUS, min_size=1, max_size=5)))
    links = {pair: draw(LINKS) for pair in combinations(range(len(gpus)), 2) if draw(st.booleans())}
    return NodeDocument(
        gpus,
        links=links,
        boot_id=draw(MAYBE),
        class_hash=draw(MAYBE),
        warnings=tuple(draw(st.lists(FINDINGS, max_size=2))),
    )


@st.composite
def records(draw):
    levels = draw(st.lists(st.sampled_from(["leaf", "spine", "core"]), unique=True))
    path = tuple((level, draw(TEXTS)) for level in levels if draw(st.booleans()))
    return NodeRecord(
        name=draw(st.sampled_from([f"n{i}" for i in range(30)])),
        place=Place(path, draw(MAYBE)),
        levels=tuple(draw(st.sampled_from([levels, levels[:1], []]))),
        resource=draw(TEXTS),
        capacity=draw(st.integers(0, 9)),
        allocatable=draw(st.integers(0, 9)),
        document=draw(st.none() | documents()),
        preset=draw(st.sampled_from([None, None, "some-box"])),
        boot_id=draw(MAYBE),
        findings=tuple(draw(st.lists(FINDINGS, max_size=2))),
    )


@given(st.lists(records(), max_size=8, unique_by=lambda record: record.name), st.randoms(use_true_random=False))
def test_any_cluster_has_an_answer_that_does_not_depend_on_the_order(cluster, shuffle):
    found = lint(cluster)
    other = list(cluster)
    shuffle.shuffle(other)

    assert lint(other) == found
    assert len(set(found)) == len(found)
    severities = [list(Severity).index(finding.severity) for finding in found]
    assert severities == sorted(severities)


def healthy(rng: random.Random) -> list[NodeRecord]:
    """Return a cluster without a fault: pools of different depth, each domain with several of the nearer ones."""
    cluster = []
    for pool in range(rng.randint(1, 3)):
        levels = ("leaf", "spine", "core")[: rng.randint(1, 3)]
        gpus, link = rng.choice([(1, "?"), (2, "PHB"), (4, "NV12"), (8, "NV18"), (8, "XGMI1")])
        nvlink = rng.random() < 0.5
        for leaf in range(4):
            names = (f"leaf-{pool}-{leaf}", f"spine-{pool}-{leaf // 2}", f"core-{pool}")
            place = Place(tuple(zip(levels, names, strict=False)), f"nvl.{pool}.{leaf}" if nvlink else None)
            for at in range(rng.randint(3, 6)):
                name = f"n-{pool}-{leaf}-{at}"
                cards = tuple(Gpu(f"GPU{i}", f"{name}-{i}", None, f"model-{pool}", i % 2) for i in range(gpus))
                links = {pair: Link.parse(link) for pair in combinations(range(gpus), 2)}
                document = NodeDocument(cards, links=links, boot_id=name)
                cluster.append(NodeRecord(name, place, levels, "amd.com/gpu", gpus, gpus, document, boot_id=name))
    return cluster


def without_place(_, node):
    return replace(node, place=NOWHERE)


def without_a_level(rng, node):
    path = list(node.place.path)
    del path[rng.randrange(len(path))]
    return replace(node, place=replace(node.place, path=tuple(path)))


def rebooted(_, node):
    return replace(node, boot_id="later")


def without_a_gpu(_, node):
    return replace(node, capacity=node.capacity - 1, allocatable=node.capacity - 1)


def without_a_document(_, node):
    return replace(node, document=None)


def with_numa_unknown(rng, node):
    gpus = list(node.document.gpus)
    at = rng.randrange(len(gpus))
    gpus[at] = replace(gpus[at], numa=None)
    return replace(node, document=replace(node.document, gpus=tuple(gpus)))


def with_a_link_unknown(rng, node):
    pair = rng.choice(sorted(node.document.links))
    return replace(node, document=replace(node.document, links={**node.document.links, pair: UNKNOWN_LINK}))


def off_the_fabric(rng, node):
    at = rng.randrange(len(node.document.gpus))
    links = {pair: Link.parse("PHB") if at in pair else link for pair, link in node.document.links.items()}
    return replace(node, document=replace(node.document, links=links))


def with_a_uuid_twice(_, node):
    gpus = list(node.document.gpus)
    gpus[0] = replace(gpus[0], uuid=gpus[-1].uuid)
    return replace(node, document=replace(node.document, gpus=tuple(gpus)))


# The fault, its code, and which nodes can have it.
FAULTS = [
    (without_place, "node-unplaced", lambda node: True),
    (without_a_level, "unequal-depth", lambda node: len(node.levels) > 1),
    (rebooted, "document-older-than-boot", lambda node: True),
    (without_a_gpu, "capacity-differs", lambda node: True),
    (without_a_document, "document-missing", lambda node: True),
    (with_numa_unknown, "numa-unknown", lambda node: node.capacity > 1),
    (with_a_link_unknown, "link-unknown", lambda node: node.capacity > 2),
    (off_the_fabric, "gpu-off-fabric", lambda node: node.capacity > 2),
    (with_a_uuid_twice, "uuid-duplicated", lambda node: node.capacity > 1),
]


@given(st.integers(0, 10_000))
def test_a_healthy_cluster_has_no_findings(seed):
    assert lint(healthy(random.Random(seed))) == []


@given(st.integers(0, 10_000), st.sampled_from(FAULTS))
def test_one_fault_is_one_finding_of_its_kind_that_names_the_node(seed, fault):
    spoil, code, can_have = fault
    rng = random.Random(seed)
    cluster = healthy(rng)
    able = [i for i, node in enumerate(cluster) if can_have(node)]
    if not able:
        return
    at = rng.choice(able)
    cluster[at] = spoil(rng, cluster[at])
    [finding] = lint(cluster)

    assert finding.code == code
    assert finding.node == cluster[at].name or cluster[at].name in finding.message
    assert finding.remedy
