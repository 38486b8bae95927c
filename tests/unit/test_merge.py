"""Several views of one machine become one document: what is matched, what wins, and what is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyscheduler.core.findings import Finding
from pyscheduler.core.machine.document import Gpu, Measured, Nic, NodeDocument
from pyscheduler.core.machine.links import UNKNOWN_LINK, Kind, Link
from pyscheduler.core.machine.merge import MergeError, merge

NV4, NV12, PIX, PXB, PHB, SYS, PCIE = (Link.parse(text) for text in ("NV4", "NV12", "PIX", "PXB", "PHB", "SYS", "PCIE"))


def by_id(*links: Link, source: str = "topo", count: int = 2, **more: Any) -> NodeDocument:
    """A view that knows GPUs by id only, with the links of GPU0."""
    gpus = tuple(Gpu(f"GPU{at}") for at in range(count))
    return NodeDocument(gpus, links={(0, at): link for at, link in enumerate(links, start=1)}, source=source, **more)


def identities(*uuids: str, source: str = "query", **more: Any) -> NodeDocument:
    """A view with UUIDs and PCI addresses; the address holds the last letter of the UUID."""
    gpus = tuple(Gpu(f"GPU{at}", uuid=uuid, pci=f"0000:{uuid[-1]}0:00.0") for at, uuid in enumerate(uuids))
    return NodeDocument(gpus, source=source, **more)


def addresses(*letters: str, source: str = "tree", **more: Any) -> NodeDocument:
    gpus = tuple(Gpu(f"GPU{at}", pci=f"0000:{letter}0:00.0") for at, letter in enumerate(letters))
    return NodeDocument(gpus, source=source, **more)


def told(document: NodeDocument) -> dict[str, str]:
    return {finding.code: finding.message for finding in document.warnings}


def test_links_of_one_view_and_uuids_of_another():
    merged = merge([by_id(NV4), identities("U-a", "U-b")])

    assert [(gpu.id, gpu.uuid, gpu.pci) for gpu in merged.gpus] == [
        ("GPU0", "U-a", "0000:a0:00.0"),
        ("GPU1", "U-b", "0000:b0:00.0"),
    ]
    assert merged.links == {(0, 1): NV4}
    assert merged.source == "topo"
    assert merged.warnings == ()


def test_gpus_are_matched_by_uuid_whatever_their_ids():
    turned = replace(
        identities("U-b", "U-a", source="other"),
        gpus=(Gpu("GPU0", uuid="U-b", numa=1), Gpu("GPU1", uuid="U-a", numa=0)),
        links={(0, 1): NV4},
        nics=(Nic("NIC0", name="mlx5_0"),),
        nic_links={(0, 0): PIX},
    )
    merged = merge([identities("U-a", "U-b"), turned])

    assert [(gpu.id, gpu.uuid, gpu.numa) for gpu in merged.gpus] == [("GPU0", "U-a", 0), ("GPU1", "U-b", 1)]
    assert merged.links == {(0, 1): NV4}
    assert merged.nic_links == {(1, 0): PIX}


def test_a_view_with_uuid_and_pci_ties_those_that_have_one_of_them():
    list_ = NodeDocument((Gpu("GPU0", uuid="U-a", model="A100"), Gpu("GPU1", uuid="U-b", model="A100")), source="list")
    merged = merge([list_, addresses("b", "a", links={(0, 1): PXB}), identities("U-a", "U-b")])

    assert [(gpu.uuid, gpu.pci, gpu.model) for gpu in merged.gpus] == [
        ("U-a", "0000:a0:00.0", "A100"),
        ("U-b", "0000:b0:00.0", "A100"),
    ]
    assert merged.links == {(0, 1): PXB}


def test_uuids_and_addresses_are_not_matched_by_position():
    list_ = NodeDocument((Gpu("GPU0", uuid="U-a"), Gpu("GPU1", uuid="U-b")), source="list")

    with pytest.raises(MergeError, match="tree has no GPU in common with list"):
        merge([list_, addresses("a", "b")])
    with pytest.raises(MergeError, match=r"GPU0 is U-a in list and 0000:a0:00\.0 in tree, and topo has nothing but such ids"):
        merge([by_id(NV4), list_, addresses("a", "b")])


def test_ids_match_nothing_where_two_views_number_gpus_differently():
    with pytest.raises(MergeError, match="GPU0 is U-a in query and U-b in other"):
        merge([by_id(NV4), identities("U-a", "U-b"), identities("U-b", "U-a", source="other")])


def test_a_part_of_the_gpus_is_not_matched_by_id():
    with pytest.raises(MergeError, match="topo has 3 GPUs known by id only, query has 2, and GPU2 is not in both"):
        merge([by_id(NV4, NV4, count=3), identities("U-a", "U-b")])
    with pytest.raises(MergeError, match="container has 2 GPUs known by id only, topo has 3"):
        merge([by_id(NV4, NV4, count=3), by_id(NV4, source="container")])


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (identities("U-c", "U-d", source="other"), "other has no GPU in common with query"),
        (identities("U-a", "U-c", source="other"), "GPU1 is U-b in query and U-c in other"),
        (replace(identities("U-a", "X-b"), source="other"), "at 0000:b0:00.0 is U-b in query and X-b in other"),
        (identities("U-a", "U-a", source="other"), "other lists U-a twice"),
        (NodeDocument((Gpu("gpu-0"), Gpu("gpu-1")), source="other"), "other has 2 GPUs known by id only"),
        (NodeDocument((), source="other"), "other has no GPU in common"),
    ],
)
def test_another_machine_or_time_is_refused(other, reason):
    with pytest.raises(MergeError, match=reason):
        merge([identities("U-a", "U-b"), other])


def test_without_a_document_nothing_is_merged():
    with pytest.raises(MergeError, match="nothing to merge"):
        merge([])


def test_a_gpu_that_one_view_knows_stays_and_is_told():
    merged = merge([identities("U-a", "U-b"), identities("U-a", "U-b", "U-c", source="new")])

    assert [gpu.uuid for gpu in merged.gpus] == ["U-a", "U-b", "U-c"]
    assert told(merged) == {"gpu-in-one-source": "GPU2: only in new"}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (UNKNOWN_LINK, NV4, NV4),
        (SYS, UNKNOWN_LINK, SYS),
        (PCIE, PIX, PIX),
        (PCIE, SYS, SYS),
        (Link(Kind.XGMI), Link(Kind.XGMI, 2), Link(Kind.XGMI, 2)),
        (UNKNOWN_LINK, UNKNOWN_LINK, UNKNOWN_LINK),
    ],
)
def test_known_beats_unknown_and_exact_beats_vague(first, second, expected):
    for pair in ((first, second), (second, first)):
        merged = merge([by_id(pair[0]), by_id(pair[1], source="other")])
        assert merged.links == {(0, 1): expected}
        assert merged.warnings == ()


@pytest.mark.parametrize(
    ("first", "second", "weaker"), [(NV4, NV12, NV4), (PHB, PIX, PHB), (NV4, PCIE, PCIE), (Link(Kind.XGMI), NV4, Link(Kind.XGMI))]
)
def test_where_two_links_contradict_the_weaker_counts(first, second, weaker):
    for pair in ((first, second), (second, first)):
        merged = merge([by_id(pair[0]), by_id(pair[1], source="other")])
        assert merged.links == {(0, 1): weaker}
        assert all(word in told(merged)["sources-disagree"] for word in (str(first), str(second), "topo", "other"))


def test_many_pairs_that_contradict_alike_are_one_warning():
    merged = merge([by_id(*[NV12] * 9, count=10), by_id(*[NV4] * 9, count=10, source="other")])

    listed = "GPU0-GPU1, GPU0-GPU2, GPU0-GPU3, GPU0-GPU4, GPU0-GPU5, GPU0-GPU6 and 3 more"
    assert [finding.message for finding in merged.warnings] == [f"{listed}: link NV12 in topo, NV4 in other; the weakest counts"]


def test_a_view_of_pcie_only_does_not_contradict_nvlink():
    pcie = by_id(SYS, PIX, count=3, complete=False, warnings=(Finding("nvlink-hidden", "PCIe paths only"),))
    merged = merge([pcie, by_id(NV4, SYS, count=3, source="full")])

    assert merged.links == {(0, 1): NV4, (0, 2): SYS}
    assert [finding.code for finding in merged.warnings] == ["nvlink-hidden", "sources-disagree"]


@pytest.mark.parametrize(
    ("field", "first", "second", "word"),
    [
        ("numa", 0, 1, "NUMA node"),
        ("model", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "model"),
        ("cpu_affinity", "0-31", "0-63", "CPU affinity"),
        ("pci", "0000:1a:00.0", "0000:1b:00.0", "PCI address"),
    ],
)
def test_a_field_that_two_views_contradict_is_unknown(field, first, second, word):
    views = [NodeDocument((Gpu("GPU0", uuid="U-a", **{field: value}),), source=f"from {value}") for value in (first, second)]
    merged = merge(views)

    assert getattr(merged.gpus[0], field) is None
    assert told(merged)["sources-disagree"] == f"GPU0: {word} {first} in from {first}, {second} in from {second}; unknown"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("A100", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA-A100-SXM4-40GB", "NVIDIA A100 SXM4 40GB", "NVIDIA-A100-SXM4-40GB"),
        (None, "A100", "A100"),
    ],
)
def test_the_model_in_more_words_counts(first, second, expected):
    merged = merge([NodeDocument((Gpu("GPU0", model=first),)), NodeDocument((Gpu("GPU0", model=second),))])

    assert merged.gpus[0].model == expected
    assert merged.warnings == ()


def test_a_gpu_is_healthy_only_if_no_view_says_otherwise():
    merged = merge([by_id(NV4), NodeDocument((Gpu("GPU0"), Gpu("GPU1", healthy=False)))])

    assert [gpu.healthy for gpu in merged.gpus] == [True, False]


def test_sources_of_one_name_are_told_apart():
    merged = merge([by_id(NV4, source="file"), by_id(NV12, source="file")])

    assert "NV12 in file (2), NV4 in file (1)" in told(merged)["sources-disagree"]


def with_nics(*nics: Nic, near: int, source: str) -> NodeDocument:
    return NodeDocument((Gpu("GPU0"),), nics, nic_links={(0, near): PIX}, source=source)


def test_nics_are_matched_by_name_and_by_address():
    legend = with_nics(Nic("NIC0", "mlx5_0"), Nic("NIC1", "mlx5_1"), near=1, source="topo")
    named = with_nics(Nic("NIC0", "mlx5_1", "0000:1b:00.0"), Nic("NIC1", "mlx5_0", "0000:1a:00.0"), near=0, source="tree")
    bare = NodeDocument((Gpu("GPU0"),), (Nic("NIC0", pci="0000:1a:00.0", gbps=50.0),), nic_links={(0, 0): SYS}, source="rate")
    merged = merge([legend, named, bare])

    assert merged.nics == (Nic("NIC0", "mlx5_0", "0000:1a:00.0", 50.0), Nic("NIC1", "mlx5_1", "0000:1b:00.0"))
    assert merged.nic_links == {(0, 1): PIX, (0, 0): SYS}
    assert merged.warnings == ()


def test_a_nic_that_one_view_knows_stays_under_an_id_of_its_own():
    merged = merge(
        [with_nics(Nic("NIC0", "mlx5_0"), near=0, source="a"), with_nics(Nic("NIC0", "mlx5_9"), near=0, source="b")],
    )

    assert [(nic.id, nic.name) for nic in merged.nics] == [("NIC0", "mlx5_0"), ("mlx5_9", "mlx5_9")]
    assert merged.nic_links == {(0, 0): PIX, (0, 1): PIX}


def test_a_nic_without_a_name_stays_under_its_address_where_its_id_is_taken():
    first, second = (Nic("NIC0", pci=f"0000:{bus}:00.0") for bus in ("1a", "1b"))
    merged = merge([with_nics(first, near=0, source="a"), with_nics(second, near=0, source="b")])

    assert [nic.id for nic in merged.nics] == ["NIC0", "0000:1b:00.0"]


@pytest.mark.parametrize("nic", [Nic("NIC0", "mlx5_0"), Nic("NIC3", pci="0000:1a:00.0")])
def test_nics_that_nothing_ties_are_left_out(nic):
    view = replace(with_nics(nic, near=0, source="tree"), measured=(Measured("ib-write-bw", 24.0, ("GPU0",), nic=nic.id),))
    merged = merge([with_nics(Nic("NIC0"), near=0, source="topo"), view])

    assert merged.nics == (Nic("NIC0"),)
    assert merged.nic_links == {(0, 0): PIX}
    assert merged.measured == ()
    assert told(merged)["nic-left-out"].startswith(f"{nic.id}: only in tree")


def test_two_ports_of_one_address_stay_two():
    ports = with_nics(Nic("NIC0", pci="0000:1a:00.0"), Nic("NIC1", pci="0000:1a:00.0"), near=1, source="tree")

    assert merge([ports]) == ports
    assert merge([ports, ports]) == ports


def test_a_pair_without_peer_access_in_one_view_has_none():
    first = by_id(NV4, p2p={(0, 1): "?"})
    turned = NodeDocument((Gpu("GPU1"), Gpu("GPU0")), p2p={(0, 1): "GNS"}, source="p2p")

    assert merge([first, turned, by_id(NV4, source="third")]).p2p == {(0, 1): "GNS"}


def test_the_newest_measurement_of_a_kind_stays_under_the_ids_of_the_first_view():
    old = Measured("p2p-bandwidth", 20.0, ("GPU0", "GPU1"), observed_at=100.0)
    new = Measured("p2p-bandwidth", 22.0, ("GPU1", "GPU0"), observed_at=200.0)
    other = Measured("nccl-tests", 180.0, ("GPU0", "GPU1"), observed_at=50.0)
    turned = identities("U-b", "U-a", source="turned", measured=(new, other))
    merged = merge([identities("U-a", "U-b", measured=(old,)), turned])

    assert merged.measured == (replace(new, gpus=("GPU0", "GPU1")), replace(other, gpus=("GPU1", "GPU0")))
    assert merge([replace(merged, measured=(replace(old, observed_at=None), new, old))]).measured == (old, new)


def test_a_measurement_of_a_gpu_that_is_not_there_is_left_out():
    merged = merge([by_id(NV4, measured=(Measured("nccl-tests", 180.0, ("GPU0", "GPU7")),))])

    assert merged.measured == ()
    assert told(merged) == {"measurement-left-out": "nccl-tests of topo: names GPU7, which is not there"}


def test_the_whole_is_as_old_as_its_oldest_part_and_of_one_boot():
    merged = merge([by_id(NV4, observed_at=200.0), by_id(NV4, observed_at=100.0, boot_id="b-1"), by_id(NV4)])
    assert (merged.observed_at, merged.boot_id) == (100.0, "b-1")

    twice = merge([by_id(NV4, boot_id="b-1"), by_id(NV4, boot_id="b-2", source="other")])
    assert twice.boot_id is None
    assert "b-1 in topo" in told(twice)["sources-disagree"]


def test_topology_policies_that_differ_are_unknown():
    assert merge([by_id(NV4, topology_policy="restricted"), by_id(NV4)]).topology_policy == "restricted"
    assert merge([by_id(NV4, topology_policy="restricted"), by_id(NV4, topology_policy="none")]).topology_policy is None


def test_a_class_hash_is_that_of_all_or_of_none():
    assert merge([by_id(NV4, class_hash="c-1"), by_id(NV4, class_hash="c-1")]).class_hash == "c-1"
    merged = merge([by_id(class_hash="c-1"), by_id(NV4, source="other")])
    assert merged.class_hash is None
    assert told(merged) == {"class-not-read": "topo: its links stand in class c-1 and are missing here"}


def test_what_is_cut_in_one_view_is_complete_where_another_shows_all():
    cut = by_id(complete=False, warnings=(Finding("row-cut", "cut"),))
    near = replace(by_id(NV4), nics=(Nic("NIC0", "mlx5_0"),), nic_links={(0, 0): PIX, (1, 0): PXB}, source="near")

    assert merge([cut, by_id(NV4, source="whole")]).complete
    assert not merge([cut, by_id(NV4, complete=False)]).complete
    assert not merge([cut, by_id(UNKNOWN_LINK)]).complete
    assert merge([cut, near]).complete
    assert not merge([replace(near, complete=False), by_id(NV4)]).complete


def test_warnings_and_findings_of_all_views_are_kept_once():
    odd, other = Finding("row-cut", "line 3 is cut"), Finding("cell-cut", "line 4 is cut")
    merged = merge([by_id(NV4, warnings=(odd,), findings=(other,)), by_id(NV4, warnings=(odd, other))])

    assert merged.warnings == (odd, other)
    assert merged.findings == (other,)
