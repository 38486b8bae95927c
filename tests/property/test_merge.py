"""Views cut out of one machine: no merge of them shows a better link than it has, and what one of them shows is not lost."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.document import Gpu, Measured, Nic, NodeDocument
from pyscheduler.core.machine.links import UNKNOWN_LINK, Kind, Link
from pyscheduler.core.machine.merge import MergeError, merge

LINKS = [Link.parse(text) for text in ("NV18", "NV4", "XGMI4", "XGMI", "PIX", "PXB", "PHB", "NODE", "PCIE", "SYS")]
# What a tool that does not look closely makes of a link.
VAGUE = {Link(kind): Link(Kind.PCIE) for kind in (Kind.PIX, Kind.PXB, Kind.PHB, Kind.NODE)} | {
    Link(Kind.XGMI, 4): Link(Kind.XGMI)
}
# Which of UUID and PCI address a GPU of a view loses.
WITH_UUID = st.sampled_from([(), ("pci",)])
ANY_IDENTITY = st.sampled_from([(), ("pci",), ("uuid",), ("uuid", "pci")])
FIELDS = ("model", "numa", "cpu_affinity")


@st.composite
def machines(draw) -> NodeDocument:
    count, nics = draw(st.integers(1, 5)), draw(st.integers(0, 3))
    models = st.sampled_from([None, "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"])
    gpus = tuple(
        Gpu(
            f"GPU{i}",
            f"GPU-{i}",
            f"0000:{i:02x}:00.0",
            draw(models),
            draw(st.integers(0, 1)),
            f"{i}-{i + 8}",
            draw(st.booleans()),
        )
        for i in range(count)
    )
    pairs = list(combinations(range(count), 2))
    return NodeDocument(
        gpus,
        tuple(Nic(f"NIC{i}", f"mlx5_{i}", f"0000:f{i}:00.0", 50.0) for i in range(nics)),
        {pair: draw(st.sampled_from(LINKS)) for pair in pairs},
        {(gpu, nic): draw(st.sampled_from(LINKS[4:])) for gpu in range(count) for nic in range(nics)},
        costs={pair: draw(st.integers(1, 60)) for pair in pairs} if draw(st.booleans()) else {},
        p2p={pair: "GNS" for pair in pairs if draw(st.booleans())},
        measured=(Measured("nccl-tests", 100.0, tuple(gpu.id for gpu in gpus)),),
        source="truth",
        observed_at=draw(st.none() | st.floats(0, 1e9)),
        boot_id=draw(st.sampled_from([None, "b-1"])),
        complete=draw(st.booleans()),
        warnings=(Finding("row-cut", "line 2 is cut"),),
    )


def without(gpu: Gpu, names: tuple[str, ...]) -> Gpu:
    unknown: dict[str, Any] = dict.fromkeys(names)
    return replace(gpu, **unknown)


@st.composite
def views(draw, truth: NodeDocument, identity=WITH_UUID) -> NodeDocument:
    """The machine without some of its fields and links."""

    def seen(link: Link) -> Link | None:
        return draw(st.sampled_from([link, VAGUE.get(link, link), UNKNOWN_LINK, None]))

    def cut(links):
        return {pair: link for pair, whole in links.items() if (link := seen(whole)) is not None}

    gone = [(*draw(identity), *draw(st.sets(st.sampled_from(FIELDS)))) for _ in truth.gpus]
    return replace(
        truth,
        gpus=tuple(without(gpu, names) for gpu, names in zip(truth.gpus, gone, strict=True)),
        links=cut(truth.links),
        nic_links=cut(truth.nic_links),
        source=draw(st.sampled_from(["a", "b"])),
    )


@st.composite
def cut_machines(draw, /, **how) -> tuple[NodeDocument, list[NodeDocument]]:
    truth = draw(machines())
    return truth, draw(st.lists(views(truth, **how), min_size=1, max_size=3))


def known(links, pair) -> Link:
    return links.get(pair, UNKNOWN_LINK)


@given(machines(), st.integers(1, 3))
def test_a_document_merged_with_itself_is_the_same(machine, times):
    assert merge([machine] * times) == machine


@given(cut_machines())
def test_what_one_view_shows_is_there_and_nothing_is_better_than_the_machine(case):
    truth, cuts = case
    merged = merge(cuts)

    for name in ("links", "nic_links"):
        for pair, link in getattr(truth, name).items():
            shown = [known(getattr(view, name), pair) for view in cuts]
            found = known(getattr(merged, name), pair)
            assert found in {link, VAGUE.get(link, link), UNKNOWN_LINK}
            assert (found == link) == (link in shown)
            assert (found == UNKNOWN_LINK) == all(one == UNKNOWN_LINK for one in shown)
    for at, gpu in enumerate(truth.gpus):
        for name in FIELDS:
            some = any(getattr(view.gpus[at], name) is not None for view in cuts)
            assert getattr(merged.gpus[at], name) == (getattr(gpu, name) if some else None)
    assert "sources-disagree" not in {finding.code for finding in merged.warnings}


@given(cut_machines(identity=ANY_IDENTITY))
def test_however_gpus_are_named_they_are_matched_rightly_or_not_at_all(case):
    truth, cuts = case
    try:
        merged = merge(cuts)
    except MergeError:
        return
    assert [(gpu.id, gpu.healthy) for gpu in merged.gpus] == [(gpu.id, gpu.healthy) for gpu in truth.gpus]
    for pair, link in merged.links.items():
        assert link in {truth.links[pair], VAGUE.get(truth.links[pair]), UNKNOWN_LINK}


@given(cut_machines(), st.data())
def test_order_and_ids_do_not_matter_to_gpus_that_have_a_uuid(case, data):
    truth, cuts = case
    order = data.draw(st.permutations(range(len(truth.gpus))))
    turned = NodeDocument(
        tuple(replace(truth.gpus[old], id=f"GPU{new}") for new, old in enumerate(order)),
        links={(a, b): truth.link(order[a], order[b]) for a, b in combinations(range(len(order)), 2)},
        source="turned",
    )
    merged = merge([cuts[0], turned])

    assert [(gpu.uuid, gpu.numa) for gpu in merged.gpus] == [(gpu.uuid, gpu.numa) for gpu in truth.gpus]
    assert dict(merged.links) == dict(truth.links)


@given(machines(), st.data())
def test_a_wrong_view_makes_no_link_better_than_a_right_one_says(truth, data):
    wrong = replace(truth, links={pair: data.draw(st.sampled_from(LINKS)) for pair in truth.links}, source="wrong")
    merged = merge(data.draw(st.permutations([truth, wrong])))

    for pair, link in truth.links.items():
        vague = VAGUE.get(wrong.links[pair]) == link or (link.kind is Kind.PCIE and not wrong.links[pair].fast)
        if not vague:
            assert merged.links[pair].distance >= link.distance
