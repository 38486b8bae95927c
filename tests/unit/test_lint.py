"""Lint of a cluster: each check finds its fault, says what to do, and is silent on clusters that are as they should be."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from pyscheduler.core import presets
from pyscheduler.core.fabric.place import NOWHERE, Place
from pyscheduler.core.findings import Finding, Severity
from pyscheduler.core.lint import lint as lint_all
from pyscheduler.core.machine.document import Gpu, NodeDocument
from pyscheduler.core.machine.links import UNKNOWN_LINK, Link
from pyscheduler.core.record import NodeRecord

RESOURCE = "nvidia.com/gpu"
BOOT = "b00t-1"


def document(node, gpus=8, link="NV18", **fields):
    """Return the document of a node whose GPUs all have the same link."""
    cards = tuple(Gpu(f"GPU{i}", uuid=f"GPU-{node}-{i}", model="NVIDIA H100", numa=2 * i // gpus) for i in range(gpus))
    links = {pair: Link.parse(link) for pair in combinations(range(gpus), 2)}
    return NodeDocument(cards, links=links, **{"boot_id": BOOT, "source": "agent", **fields})


def place(*path, domain=None):
    return Place(tuple((level, name) for level, name in path if name), domain)


def node(name, *path, **fields):
    """Return a healthy node with the levels of `path`, (level, domain) each; one without domain is a level that it lacks."""
    found = {
        "place": place(*path),
        "levels": tuple(level for level, _ in path),
        "document": document(name),
        "resource": RESOURCE,
        "boot_id": BOOT,
        **fields,
    }
    count = len(found["document"].gpus) if found["document"] else 8
    return NodeRecord(name, **{"capacity": count, "allocatable": count, **found})


def tree(*, spines=2, leaves=3, nodes=4, prefix="dgx"):
    """Return healthy nodes of two levels."""
    return [
        node(f"{prefix}-{s}-{k}-{n}", ("leaf", f"{prefix}-leaf-{s}-{k}"), ("spine", f"{prefix}-spine-{s}"))
        for s in range(spines)
        for k in range(leaves)
        for n in range(nodes)
    ]


def racks(count=3, trays=18):
    """Return NVL72 racks: one level, and an NVLink domain each."""
    return [
        node(
            f"nvl-{r}-{t}",
            ("rack", f"rack-{r}"),
            place=place(("rack", f"rack-{r}"), domain=f"c1.{r}"),
            document=document(f"nvl-{r}-{t}", gpus=4),
        )
        for r in range(count)
        for t in range(trays)
    ]


def lint(records):
    """Most tests are not about the fabric: that their few nodes are nowhere is left out."""
    return [finding for finding in lint_all(records) if finding.code != "fabric-unknown"]


def only(findings, code, severity=Severity.WARNING):
    """Return the one finding, which is of this code and says what to do."""
    assert [(f.code, f.severity) for f in findings] == [(code, severity)]
    assert findings[0].remedy
    return findings[0]


def with_gpus(which, **fields):
    return lambda doc: replace(doc, gpus=tuple(replace(g, **fields) if i in which else g for i, g in enumerate(doc.gpus)))


def with_links(kind, touching):
    """Return the document with this link for the pairs that `touching` admits."""
    return lambda doc: replace(doc, links={p: Link.parse(kind) if touching(*p) else old for p, old in doc.links.items()})


def alone(change, **fields):
    """Return what is found on one node whose document is changed so."""
    return lint([node("n1", document=change(document("n1")), **fields)])


# Clusters without a fault.


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param([], id="empty"),
        pytest.param([NodeRecord("cpu-1"), NodeRecord("cpu-2", place(("rack", "a")))], id="no GPUs"),
        pytest.param([node("n1"), node("n2")], id="no fabric labels at all"),
        pytest.param(tree(), id="two levels"),
        pytest.param(racks(), id="racks of NVL72"),
        pytest.param([*tree(), *racks(), NodeRecord("cpu-1")], id="pools of different depth"),
        pytest.param([node("n1", document=document("n1", link="SYS")), node("n2", document=document("n2", 1))], id="no NVLink"),
    ],
)
def test_a_healthy_cluster_has_no_findings(cluster):
    assert lint(cluster) == []


def test_a_node_with_one_gpu_needs_no_links_and_no_numa_node():
    assert alone(lambda doc: NodeDocument((replace(doc.gpus[0], numa=None),), boot_id=BOOT)) == []


def test_details_that_stand_elsewhere_are_not_missed():
    bare = tuple(Gpu(f"GPU{i}", uuid=f"GPU-{i}") for i in range(8))

    assert alone(lambda doc: replace(doc, gpus=bare, links={}, class_hash="c0ffee")) == []


# Where nodes hang.


def test_a_gpu_node_without_any_level_is_unplaced():
    found = only(lint([*tree(), node("stray", levels=("leaf", "spine"))]), "node-unplaced")

    assert found.node == "stray"
    assert "24 of 25" in found.message
    assert "leaf, spine" in found.remedy


def test_a_node_without_gpus_need_not_be_placed():
    assert lint([*tree(), NodeRecord("cpu-1")]) == []


def test_a_lone_node_under_another_parent_is_probably_mislabelled():
    cluster = [*tree(nodes=8), node("odd", ("leaf", "dgx-leaf-0-1"), ("spine", "dgx-spine-1"))]
    found = only(lint(cluster), "several-parents")

    assert "dgx-leaf-0-1" in found.message
    assert "dgx-spine-0 (8 nodes)" in found.message
    assert "dgx-spine-1 (1 node: odd)" in found.message
    assert "mislabelled: odd" in found.message
    assert "odd" in found.remedy


def test_a_leaf_evenly_under_two_parents_names_no_culprit():
    extra = [node(f"x{i}", ("leaf", "dgx-leaf-0-1"), ("spine", "dgx-spine-1")) for i in range(4)]
    found = only(lint([*tree(), *extra]), "several-parents")

    assert "mislabelled" not in found.message
    assert "(4 nodes)" in found.message


@pytest.mark.parametrize(("apart", "guessed"), [(1, True), (2, False)])
def test_two_nodes_of_six_may_well_be_a_leaf_of_their_own(apart, guessed):
    extra = [node(f"x{i}", ("leaf", "dgx-leaf-0-1"), ("spine", "dgx-spine-1")) for i in range(apart)]
    found = only(lint([*tree(), *extra]), "several-parents")

    assert ("mislabelled" in found.message) is guessed


def test_some_names_under_two_parents_are_told_one_by_one():
    extra = [node(f"x{k}", ("leaf", f"dgx-leaf-0-{k}"), ("spine", "dgx-spine-1")) for k in range(2)]
    found = lint([*tree(), *extra])

    assert [(f.code, f.severity) for f in found] == [("several-parents", Severity.WARNING)] * 2


def test_the_only_leaf_under_two_parents_is_told():
    cluster = [node(f"n{i}", ("leaf", "leaf-1"), ("spine", f"spine-{i % 2}")) for i in range(6)]

    assert ("several-parents", Severity.WARNING) in {(f.code, f.severity) for f in lint(cluster)}


def test_leaves_that_each_spine_numbers_from_the_start_are_a_note():
    cluster = [
        node(f"n-{s}-{k}-{n}", ("leaf", f"leaf-{k}"), ("spine", f"spine-{s}"))
        for s in range(4)
        for k in range(4)
        for n in range(2)
    ]
    found = only(lint(cluster), "several-parents", Severity.NOTE)

    assert "4 of 4" in found.message


def test_parents_are_compared_at_one_level():
    # The node that lacks its spine hangs under the core at once: that is its depth, and no second parent.
    upper = ("core", "core-1")
    whole = [node(f"n{i}", ("leaf", "leaf-1"), ("spine", "spine-1"), upper) for i in range(4)]
    found = only(lint([*whole, node("short", ("leaf", "leaf-1"), ("spine", ""), upper)]), "unequal-depth")

    assert "no spine on 1 of 5 nodes" in found.message
    assert found.message.endswith(": short")


def test_a_node_whose_leaf_goes_on_for_others_lacks_a_level():
    # Its own levels end where its labels do.
    found = only(lint([*tree(), node("short", ("leaf", "dgx-leaf-1-2"))]), "unequal-depth")

    assert "no spine on 1 of" in found.message


def test_a_level_that_no_node_of_a_pool_has_is_told_once():
    cluster = [node(f"n{i}", ("leaf", f"leaf-{i % 2}"), ("spine", "")) for i in range(40)]
    found = only(lint(cluster), "unequal-depth")

    assert "40 of 40" in found.message
    assert "and 34 more" in found.message


def test_levels_the_wrong_way_round():
    cluster = [node(f"n{i}", ("leaf", f"spine-{i // 8}"), ("spine", f"leaf-{i}")) for i in range(16)]
    found = only(lint(cluster), "tier-inversion")

    assert "leaf" in found.message


def test_direction_is_counted_pool_by_pool():
    swapped = [node(f"n{i}", ("leaf", f"spine-{i // 8}"), ("spine", f"leaf-{i}")) for i in range(16)]
    core = ("core", "core-1")
    good = [replace(n, place=Place((*n.place.path, core)), levels=(*n.levels, "core")) for n in tree()]

    assert "tier-inversion" in {f.code for f in lint([*swapped, *good])}


def test_an_nvlink_domain_over_two_racks():
    cluster = racks()
    cluster[0] = replace(cluster[0], place=place(("rack", "rack-2"), domain="c1.0"))
    found = only(lint(cluster), "nvlink-domain-split")

    assert "c1.0" in found.message
    assert "rack-0 (17 nodes)" in found.message
    assert "rack-2 (1 node: nvl-0-0)" in found.message


def test_an_nvlink_domain_over_two_leaves_and_spines_is_told_once_at_the_nearest():
    cluster = [replace(each, place=replace(each.place, nvlink_domain="c1.0")) for each in tree(leaves=2)]
    found = only(lint(cluster), "nvlink-domain-split")

    assert "lies in 4 leaf" in found.message


def test_an_nvlink_domain_whose_members_lack_a_level_is_not_split():
    cluster = [
        replace(each, place=place(*(() if i == 3 else each.place.path), ("spine", "s"), domain="c1.0"), levels=("rack", "spine"))
        for i, each in enumerate(racks(1))
    ]

    assert [f.code for f in lint(cluster)] == ["unequal-depth"]


def test_an_nvlink_domain_in_racks_of_one_name_under_two_spines_is_split():
    cluster = [
        node(f"n-{s}-{i}", place=place(("rack", "rack-1"), ("spine", f"spine-{s}"), domain="c1.0"), levels=("rack", "spine"))
        for s in range(2)
        for i in range(3)
    ]

    assert "nvlink-domain-split" in {f.code for f in lint(cluster)}


# GPUs and their links.


@pytest.mark.parametrize("code", ["direction-mismatch", "p2p-mismatch"])
def test_a_link_in_one_direction_alone(code):
    warning = Finding(code, "GPU0-GPU1 is NV4 and PHB: the weaker, PHB, counts")
    found = only(alone(lambda doc: replace(doc, warnings=(warning,))), "one-directional-link")

    assert (found.node, found.message) == ("n1", warning.message)
    assert only(lint([node("n1", findings=(warning,))]), "one-directional-link") == found


def test_a_warning_of_the_source_is_told_with_what_to_do():
    warning = Finding("nvlink-inactive", "GPU3: NVLink 2 is inactive")

    assert only(alone(lambda doc: replace(doc, warnings=(warning,))), "nvlink-inactive").message == warning.message


def test_a_gpu_without_nvlink_among_linked_ones_is_off_the_fabric():
    found = only(alone(with_links("SYS", lambda a, b: 5 in (a, b))), "gpu-off-fabric")

    assert found.node == "n1"
    assert "GPU5," in found.message


def test_a_gpu_of_which_no_link_is_known_is_off_the_fabric():
    found = only(alone(with_links("?", lambda a, b: 5 in (a, b))), "gpu-off-fabric")

    assert "GPU5" in found.message


def test_a_gpu_of_which_some_links_are_not_known_may_be_on_the_fabric():
    def cut(doc):
        return with_links("?", lambda a, b: (a, b) == (0, 5))(with_links("SYS", lambda a, b: 5 in (a, b))(doc))

    only(alone(cut), "link-unknown")


def test_bridged_pairs_leave_nobody_off_the_fabric():
    bridged = with_links("PHB", lambda a, b: not (b - a == 1 and a in (0, 2)))

    assert alone(bridged) == []
    assert alone(with_links("PHB", lambda a, b: (a, b) != (0, 1))) == []


def test_a_display_card_beside_linked_gpus_is_not_off_the_fabric():
    def station(doc):
        return with_gpus({4}, model="NVIDIA DGX Display")(with_links("SYS", lambda a, b: b == 4)(doc))

    assert lint([node("n1", document=station(document("n1", gpus=5)))]) == []


def test_an_entry_that_could_not_be_read_is_told_where_it_was_read():
    told = Finding("gpu-unusable", "gpus[6] is no GPU", "correct it")

    def cut(doc):
        return with_gpus({6}, id="?6", uuid=None, model=None, numa=None, healthy=False)(
            replace(doc, links={p: link for p, link in doc.links.items() if 6 not in p})
        )

    assert only(alone(cut, findings=(told,), allocatable=7), "gpu-unusable").node == "n1"


def test_single_links_that_are_not_known():
    def cut(doc):
        known = {p: UNKNOWN_LINK if p == (2, 3) else link for p, link in doc.links.items() if p != (0, 7)}
        return replace(doc, links=known)

    found = only(alone(cut), "link-unknown")

    assert "2 links" in found.message
    assert "GPU0-GPU7, GPU2-GPU3" in found.message


def test_a_document_without_any_link():
    assert "8 GPUs" in only(alone(lambda doc: replace(doc, links={})), "link-unknown").message


def test_some_gpus_without_numa_node_are_a_warning():
    assert "GPU1, GPU6" in only(alone(with_gpus({1, 6}, numa=None)), "numa-unknown").message


def test_no_numa_node_at_all_is_a_note():
    assert "8 GPUs" in only(alone(with_gpus(range(8), numa=None)), "numa-unknown", Severity.NOTE).message


# Documents.


def test_stale_label_families_are_told_with_what_to_do():
    stale = Finding("label-families-disagree", "label families a and b disagree: a is used alone", "remove the labels of b")
    found = only(lint([*tree(), node("n1", ("leaf", "l-9"), ("spine", "s-9"), findings=(stale,))]), "label-families-disagree")

    assert (found.node, found.remedy) == ("n1", stale.remedy)


def test_a_document_of_an_earlier_boot():
    assert only(alone(lambda doc: replace(doc, boot_id="b00t-0")), "document-older-than-boot").node == "n1"


@pytest.mark.parametrize(("of_document", "of_node"), [(None, BOOT), (BOOT, None), (BOOT, BOOT)])
def test_a_boot_that_is_not_known_is_no_other_boot(of_document, of_node):
    assert alone(lambda doc: replace(doc, boot_id=of_document), boot_id=of_node) == []


def test_one_uuid_on_two_nodes_is_an_error():
    cluster = [node("n1"), node("n2"), node("n3", document=with_gpus({2}, uuid="GPU-n1-0")(document("n3")))]
    found = only(lint(cluster), "uuid-duplicated", Severity.ERROR)

    assert all(word in found.message for word in ("GPU-n1-0", "n1, n3"))


def test_a_copied_document_is_one_finding():
    cluster = [node(f"n{i}", document=document("n0")) for i in range(30)]
    found = only(lint(cluster), "uuid-duplicated", Severity.ERROR)

    assert "8 GPU UUIDs" in found.message
    assert "30 nodes" in found.message


def test_one_uuid_twice_on_a_node_is_an_error():
    assert only(alone(with_gpus({2}, uuid="GPU-n1-0")), "uuid-duplicated", Severity.ERROR).node == "n1"


@pytest.mark.parametrize("capacity", [0, 7, 16])
def test_capacity_that_differs_from_the_document(capacity):
    found = only(lint([node("n1", capacity=capacity, allocatable=capacity)]), "capacity-differs")

    assert f"has {capacity} of {RESOURCE}" in found.message
    assert "8 GPUs" in found.message


def test_a_kubelet_that_offers_fewer_than_are_healthy_is_a_note():
    assert "7 of 8 healthy" in only(lint([node("n1", allocatable=7)]), "allocatable-fewer", Severity.NOTE).message
    assert alone(with_gpus({3}, healthy=False), allocatable=7) == []


@pytest.mark.parametrize("value", ["topology", "cgpu", ""])
@pytest.mark.parametrize("capacity", [0, 8])
def test_gpus_that_a_label_of_ack_has_taken_out_of_normal_scheduling(value, capacity):
    found = only(lint([node("n1", capacity=capacity, allocatable=0, gpu_schedule=value)]), "scheduled-elsewhere")

    assert found.node == "n1"
    assert f"ack.node.gpu.schedule={value} " in found.message
    assert "remove the label" in found.remedy


def test_gpus_that_a_label_of_ack_has_taken_out_are_told_without_a_document_too():
    codes = [f.code for f in lint([node("n1", document=None, allocatable=0, gpu_schedule="share")])]

    assert codes == ["scheduled-elsewhere", "document-missing"]


def test_label_of_ack_is_no_fault_where_gpus_are_offered_or_where_there_are_none():
    assert lint([node("n1", gpu_schedule="default"), NodeRecord("cpu-1", gpu_schedule="topology")]) == []


def test_nodes_without_a_document_are_one_note():
    found = only(lint([node(f"n{i}", document=None) for i in range(9)]), "document-missing", Severity.NOTE)

    assert found.node == ""
    assert "9 GPU nodes" in found.message
    assert "and 3 more" in found.message


def test_nodes_of_a_preset_are_one_note_each_preset_and_nothing_else():
    cluster = [node(f"{name}-{i}", document=presets.document(name), preset=name) for name in presets.names() for i in range(2)]
    found = lint(cluster)

    assert {(f.code, f.severity) for f in found} == {("document-assumed", Severity.NOTE)}
    assert len(found) == len(presets.names())
    assert all("2 nodes" in f.message for f in found)


# All of them together.


def test_findings_are_in_order_and_told_once():
    note = Finding("a-note", "told", severity=Severity.NOTE)
    warnings = [Finding("b-warning", "second"), Finding("b-warning", "first"), Finding("a-warning", "told")]
    error = Finding("z-error", "told", severity=Severity.ERROR)
    found = lint([node("n2", findings=(note, *warnings, note)), node("n1", findings=(error, warnings[0]))])

    assert [(f.code, f.node, f.message) for f in found] == [
        ("z-error", "n1", "told"),
        ("a-warning", "n2", "told"),
        ("b-warning", "n1", "second"),
        ("b-warning", "n2", "first"),
        ("b-warning", "n2", "second"),
        ("a-note", "n2", "told"),
    ]


def test_a_node_nowhere_on_a_cluster_of_one_is_no_orphan():
    assert lint([node("n1", place=NOWHERE, levels=("leaf",))]) == []


def test_a_cluster_without_any_place_is_told_of_once():
    found = lint_all([node("n1"), node("n2")])
    assert [(f.code, f.severity) for f in found] == [("fabric-unknown", Severity.NOTE)]
    assert "fabric.pools" in found[0].remedy


def test_a_whole_leaf_that_ends_too_early_is_told_of():
    alike = [node(f"a{i}", ("tier-0", f"leaf-{i // 2}"), ("tier-1", "spine-1")) for i in range(6)]
    short = [node(f"b{i}", ("tier-0", "leaf-9")) for i in range(2)]
    found = only(lint([*alike, *short]), "depth-differs", Severity.NOTE)
    assert "b0" in found.message
    assert "tier-1" in found.remedy
