"""The catalogue of metrics: raw dumps of each exporter to quantities in one unit, per card; what is absent, blank or doubled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from pyscheduler.core.capacity.cards import CardKey
from pyscheduler.core.capacity.poll import Poll
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.readers.cards.card_labels import LabelSets
from pyscheduler.readers.cards.catalogue import catalogue
from pyscheduler.readers.cards.catalogue_entries import Vendor
from pyscheduler.readers.cards.metric_queries import TIME, query
from pyscheduler.readers.cards.node_names import node_names
from pyscheduler.readers.cards.polls import Polls, polls, polls_of_text, vendors
from pyscheduler.readers.cards.prometheus_rows import rows_of_result

NOW = 1_790_000_000.0
UUID = "GPU-5a2f81c7-0000-4000-8000-00000000000a"
OTHER = "GPU-5a2f81c7-0000-4000-8000-00000000000b"
OLD = f'gpu="0",UUID="{UUID}",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="n1",DCGM_FI_DRIVER_VERSION="570"'
NEW = (
    f'gpu="0",UUID="{UUID}",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",hostname="n1",DCGM_FI_SYSTEM_DRIVER_VERSION="590"'
)
MI = 'gpu_id="3",gpu_uuid="0c1d-77",serial_number="S7",gpu_partition_id="0",gpu_compute_partition_type="spx",card_model="MI300X",hostname="a1"'

OLD_DUMP = f"""
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{{{OLD}}} 1755
DCGM_FI_DEV_GPU_UTIL{{{OLD}}} 97
DCGM_FI_DEV_POWER_USAGE{{{OLD}}} 612.5
DCGM_FI_DEV_ENFORCED_POWER_LIMIT{{{OLD}}} 700
DCGM_FI_DEV_FB_USED{{{OLD}}} 60000
DCGM_FI_DEV_FB_FREE{{{OLD}}} 20000
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{OLD}}} 5000000
DCGM_FI_DEV_THERMAL_VIOLATION{{{OLD}}} 2500000000
DCGM_FI_DEV_ROW_REMAP_FAILURE{{{OLD}}} 0
"""
NEW_DUMP = f"""
DCGM_FI_DEV_SM_CLOCK_HERTZ{{{NEW}}} 1.755e+09
DCGM_FI_DEV_GPU_UTIL_RATIO{{{NEW}}} 0.97
DCGM_FI_DEV_BOARD_POWER_WATTS{{{NEW}}} 612.5
DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS{{{NEW}}} 700
DCGM_FI_DEV_FB_USED_BYTES{{{NEW}}} 62914560000
DCGM_FI_DEV_FB_FREE_BYTES{{{NEW}}} 20971520000
DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL{{{NEW}}} 5000
DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL{{{NEW}}} 2.5
DCGM_FI_DEV_ROW_REMAP_FAILED{{{NEW}}} 0
"""


def read(text: str, **rest: object) -> Polls:
    return polls_of_text(text, catalogue(), NOW, **rest)  # type: ignore[arg-type]


def values(found: Polls | Poll, quantity: Quantity) -> dict[CardKey, float]:
    poll = found.polls[0] if isinstance(found, Polls) else found
    column = poll.samples.get(quantity)
    if column is None:
        return {}
    return {poll.cards[index]: float(value) for index, value in zip(column.cards, column.values, strict=True)}


def only(found: Polls | Poll, quantity: Quantity) -> float | None:
    """The value of the one card, None if it has none."""
    by_card = values(found, quantity)
    assert len(by_card) <= 1
    return next(iter(by_card.values()), None)


@pytest.mark.parametrize("dump", [OLD_DUMP, NEW_DUMP], ids=["names before 4.9", "names from 4.9 on"])
def test_both_generations_of_dcgm_exporter_give_the_same(dump: str) -> None:
    found = read(dump)
    assert found.findings == ()
    assert found.polls[0].cards == [CardKey("n1", UUID)]
    assert found.polls[0].facts[0].model == "NVIDIA H100 80GB HBM3"
    assert found.polls[0].facts[0].power_limit_w == 700
    expected = {
        Quantity.SM_CLOCK_HZ: 1.755e9,
        Quantity.UTILIZATION: 0.97,
        Quantity.POWER_W: 612.5,
        Quantity.FB_USED: 0.75,
        Quantity.ENERGY_J: 5000,
        Quantity.HW_THERMAL_S: 2.5,
        Quantity.REMAP_FAILED: 0,
    }
    assert {quantity: only(found, quantity) for quantity in expected} == pytest.approx(expected)


def test_amd_gives_the_same_quantities() -> None:
    found = read(f"""
gpu_clock{{clock_index="0",clock_type="system",{MI}}} 2100
gpu_clock{{clock_index="1",clock_type="system",{MI}}} 132
gpu_clock{{clock_index="8",clock_type="memory",{MI}}} 1300
gpu_gfx_activity{{{MI}}} 98
gpu_used_vram{{{MI}}} 49152
gpu_total_vram{{{MI}}} 196608
gpu_violation_socket_thermal_residency_percentage{{{MI}}} 4
gpu_violation_hbm_thermal_residency_percentage{{{MI}}} 7
gpu_violation_ppt_residency_percentage{{{MI}}} 55
gpu_health{{{MI}}} 1
pcie_speed{{{MI}}} 16
pcie_max_speed{{{MI}}} 32
""")
    assert found.polls[0].cards == [CardKey("a1", "0c1d-77")]
    expected = {
        Quantity.SM_CLOCK_HZ: 2.1e9,
        Quantity.ENGINE_ACTIVE: 0.98,
        Quantity.UTILIZATION: 0.98,
        Quantity.FB_USED: 0.25,
        Quantity.HW_THERMAL_FRACTION: 0.07,
        Quantity.POWER_CAP_FRACTION: 0.55,
        Quantity.HEALTH: 1,
        Quantity.PCIE_GEN: 4,
        Quantity.PCIE_GEN_MAX: 5,
        Quantity.XID_FATAL: 0,
    }
    assert {quantity: only(found, quantity) for quantity in expected} == pytest.approx(expected)


def test_names_of_amd_may_have_a_prefix() -> None:
    text = f"amd_gpu_package_power{{{MI}}} 500\n"
    found = polls_of_text(text, catalogue("amd_"), NOW)
    assert only(found, Quantity.POWER_W) == 500
    assert read(text).polls[0].samples == {}


def test_generation_of_a_link_follows_from_its_speed() -> None:
    speeds = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
    assert {s: only(read(f"pcie_speed{{{MI}}} {s}"), Quantity.PCIE_GEN) for s in speeds} == speeds
    assert only(read(f"pcie_speed{{{MI}}} 0\ngpu_health{{{MI}}} 1"), Quantity.PCIE_GEN) is None


def test_card_with_both_names_counts_by_the_new_one() -> None:
    both = f"DCGM_FI_DEV_SM_CLOCK{{{NEW}}} 1000\nDCGM_FI_DEV_SM_CLOCK_HERTZ{{{NEW}}} 1.2e9\n"
    assert only(read(both), Quantity.SM_CLOCK_HZ) == 1.2e9


def test_each_card_of_a_mixed_fleet_counts_by_the_name_that_it_has() -> None:
    old = OLD.replace(UUID, OTHER)
    found = read(f"DCGM_FI_DEV_SM_CLOCK{{{old}}} 1000\nDCGM_FI_DEV_SM_CLOCK_HERTZ{{{NEW}}} 1.2e9\n")
    assert values(found, Quantity.SM_CLOCK_HZ) == {CardKey("n1", UUID): 1.2e9, CardKey("n1", OTHER): 1.0e9}


def test_what_is_absent_is_unknown_except_for_events_that_did_not_happen() -> None:
    found = read(f"DCGM_FI_DEV_GPU_TEMP{{{OLD}}} 40\n")
    there = {quantity: only(found, quantity) for quantity in found.polls[0].samples}
    zero = (
        Quantity.LAST_XID,
        Quantity.XID_FATAL,
        Quantity.HW_THERMAL_S,
        Quantity.SW_THERMAL_S,
        Quantity.POWER_BRAKE_S,
        Quantity.POWER_CAP_S,
    )
    assert there == {Quantity.TEMP_C: 40, **dict.fromkeys(zero, 0.0)}


def test_xids_of_applications_are_no_fatal_events() -> None:
    codes = {"13": 5, "31": 2, "43": 1, "45": 1, "68": 1, "109": 1, "79": 1, "95": 2}
    lines = "".join(f'DCGM_EXP_XID_ERRORS_TOTAL{{xid="{code}",{NEW}}} {count}\n' for code, count in codes.items())
    assert only(read(lines), Quantity.XID_FATAL) == 3


def test_fatal_field_ids_of_amd_are_counted() -> None:
    fatal = "".join(f'gpu_afid_errors{{severity="fatal",afid_index="{i}",{MI}}} {code}\n' for i, code in enumerate((30, 25)))
    other = f'gpu_afid_errors{{severity="non_fatal_corrected",afid_index="2",{MI}}} 33\n'
    assert only(read(fatal + other), Quantity.XID_FATAL) == 2


def test_health_is_that_of_the_worst_watch() -> None:
    def health(*results: int) -> float | None:
        watches = (f'DCGM_EXP_GPU_HEALTH_STATUS{{health_watch="W{i}",{NEW}}} {r}\n' for i, r in enumerate(results))
        return only(read("".join(watches)), Quantity.HEALTH)

    good, warned, failed = health(0, 0), health(0, 10), health(10, 20, 0)
    assert (good, failed) == (1.0, 0.0)
    assert warned is not None
    assert 0 < warned < 1


def test_links_of_a_card_are_added_up() -> None:
    lines = "".join(
        f'DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL{{nvlink="{link}",gpu_uuid="{UUID}",Hostname="n1"}} {link + 1}\n'
        for kind in ("REPLAY", "RECOVERY")
        for link in range(3)
    )
    assert only(read(lines), Quantity.NVLINK_ERRORS) == 12


@pytest.mark.parametrize(
    ("metric", "value", "quantity"),
    [
        pytest.param("DCGM_FI_DEV_MEMORY_TEMP", "9223372036854775794", Quantity.MEM_TEMP_C, id="blank of 64 bits"),
        pytest.param("DCGM_FI_DEV_POWER_USAGE", "140737488355328", Quantity.POWER_W, id="blank of a float"),
        pytest.param("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "2147483632", Quantity.PCIE_REPLAYS, id="blank of 32 bits"),
        pytest.param("DCGM_FI_DEV_POWER_USAGE", "NaN", Quantity.POWER_W, id="NaN"),
        pytest.param("DCGM_FI_DEV_GPU_TEMP", "+Inf", Quantity.TEMP_C, id="infinite"),
        pytest.param("DCGM_FI_DEV_GPU_TEMP", "-1", Quantity.TEMP_C, id="below the range"),
        pytest.param("DCGM_FI_DEV_SM_CLOCK", "1755000000", Quantity.SM_CLOCK_HZ, id="a clock in the other unit"),
        pytest.param("DCGM_FI_PROF_SM_ACTIVE", "88", Quantity.SM_ACTIVE, id="a share in percent"),
    ],
)
def test_what_cannot_be_a_measurement_is_missing_and_told(metric: str, value: str, quantity: Quantity) -> None:
    found = read(f"{metric}{{{OLD}}} {value}\n")
    assert only(found, quantity) is None
    assert [finding.code for finding in found.findings] == ["sample-discarded"]
    assert metric in found.findings[0].message


def test_large_counters_are_no_blanks() -> None:
    assert only(read(f"DCGM_FI_DEV_THERMAL_VIOLATION{{{OLD}}} 8000000000000\n"), Quantity.HW_THERMAL_S) == pytest.approx(8000)


def test_doubled_series_count_once() -> None:
    """After a pod began on a card there are two series of it for a while; two scrape jobs do the same."""
    dump = f'DCGM_FI_DEV_GPU_TEMP{{{OLD}}} 60\nDCGM_FI_DEV_GPU_TEMP{{{OLD},pod="train-0",namespace="ml"}} 62\n'
    links = "".join(f'DCGM_EXP_XID_ERRORS_TOTAL{{xid="79",job="{job}",{NEW}}} 1\n' for job in ("a", "b"))
    assert only(read(dump), Quantity.TEMP_C) == 62
    assert only(read(links), Quantity.XID_FATAL) == 1


def test_unhealthy_series_of_a_card_wins_over_a_healthy_one() -> None:
    dump = f'gpu_health{{{MI}}} 1\ngpu_health{{pod="p",{MI}}} 0\n'
    assert only(read(dump), Quantity.HEALTH) == 0


def test_mig_instances_are_cards_of_their_own() -> None:
    dump = "".join(f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{OLD},GPU_I_PROFILE="1g.10gb",GPU_I_ID="{i}"}} 0.{i}\n' for i in (7, 8))
    found = read(dump)
    assert values(found, Quantity.ENGINE_ACTIVE) == {CardKey("n1", UUID, "7"): 0.7, CardKey("n1", UUID, "8"): 0.8}
    assert values(found, Quantity.UTILIZATION) == {}


def _ratio(shares: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Utilization under the name of both units, of cards by node."""
    text = "".join(
        f'DCGM_FI_DEV_GPU_UTIL_RATIO{{UUID="GPU-{node}-{i}",hostname="{node}"}} {value}\n'
        for node, cards in shares.items()
        for i, value in enumerate(cards)
    )
    return {key.uuid.removeprefix("GPU-"): round(value, 6) for key, value in values(read(text), Quantity.UTILIZATION).items()}


def test_unit_of_the_utilization_ratio_follows_from_all_values() -> None:
    assert _ratio({"a": ["97", "1"], "b": ["1", "0"]}) == {"a-0": 0.97, "a-1": 0.01, "b-0": 0.01, "b-1": 0.0}
    assert _ratio({"a": ["0.97", "1"], "b": ["1", "0"]}) == {"a-0": 0.97, "a-1": 1.0, "b-0": 1.0, "b-1": 0.0}


def test_nodes_of_two_versions_have_each_their_unit() -> None:
    assert _ratio({"a": ["97", "1"], "b": ["0.5", "1"]}) == {"a-0": 0.97, "a-1": 0.01, "b-0": 0.5, "b-1": 1.0}


def test_one_alone_is_unknown_and_nothing_is_nothing() -> None:
    assert _ratio({"a": ["1", "0"]}) == {"a-1": 0.0}
    assert _ratio({"a": ["97", "1"], "b": ["0.5"], "c": ["1", "0"]}).keys() == {"a-0", "a-1", "b-0", "c-1"}


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        pytest.param('node="n1",Hostname="dcgm-exporter-x7"', "n1", id="relabelled"),
        pytest.param('Hostname="dcgm-exporter-x7",instance="10.0.0.1:9400"', "n1", id="the host is the exporter's pod"),
        pytest.param('hostname="n1",instance="10.0.0.9:9400"', "n1", id="hostname"),
        pytest.param('instance="n1:9400"', "n1", id="instance by name"),
        pytest.param('instance="[fd00::1]:9400"', "n1", id="instance by IPv6"),
        pytest.param('pod="n1"', None, id="a pod that is called like a node"),
        pytest.param('Hostname="localhost"', None, id="localhost"),
        pytest.param('Hostname="elsewhere"', None, id="a node of another cluster"),
    ],
)
def test_node_is_the_first_label_that_names_a_known_one(labels: str, node: str | None) -> None:
    nodes = {"n1": "n1", "10.0.0.1": "n1", "fd00::1": "n1", "n2": "n2"}
    found = read(f'DCGM_FI_DEV_GPU_TEMP{{UUID="{UUID}",{labels}}} 40\n', nodes=nodes)
    assert [card.node for card in found.polls[0].cards] == ([node] if node else [])
    assert [finding.code for finding in found.findings] == ([] if node else ["metrics-without-node"])


def test_address_that_two_nodes_have_names_neither_and_is_told() -> None:
    nodes = node_names({"n1": ["10.0.0.1", "10.0.0.9"], "n2": ["10.0.0.1", "n1"], "n3": ["10.0.0.1"]})
    assert nodes == {"n1": "n1", "n2": "n2", "n3": "n3", "10.0.0.9": "n1", "10.0.0.1": ""}
    series = 'DCGM_FI_DEV_GPU_TEMP{{UUID="{}",{}instance="10.0.0.1:9400"}} 40\n'
    found = read(series.format(UUID, ""), nodes=nodes)
    assert found.polls[0].cards == []
    (finding,) = found.findings
    assert finding.message.endswith("(instance='10.0.0.1:9400'); several nodes have the same address: 10.0.0.1")
    assert finding.remedy.startswith("put the node's name in one of the labels")
    named = read(series.format(UUID, 'Hostname="n2",'), nodes=nodes)
    assert ([card.node for card in named.polls[0].cards], named.findings) == (["n2"], ())


@pytest.mark.parametrize(
    ("labels", "uuid", "part"),
    [
        pytest.param('gpu_id="0",gpu_uuid="u-1",serial_number="S1"', "u-1", "", id="its UUID"),
        pytest.param('gpu_id="0",serial_number="S1"', "S1", "", id="serial number"),
        pytest.param('gpu_id="4",serial_number=""', "index:4", "", id="in a virtual machine"),
        pytest.param('gpu_id="4",serial_number="xxxx"', "index:4", "", id="a placeholder"),
        pytest.param(
            'gpu_id="9",gpu_uuid="u-1",gpu_compute_partition_type="cpx",gpu_partition_id="2"', "u-1", "2", id="a partition"
        ),
    ],
)
def test_card_of_amd_is_known_by_the_best_that_it_shows(labels: str, uuid: str, part: str) -> None:
    found = read(f'gpu_package_power{{hostname="a1",{labels}}} 400\n')
    assert found.polls[0].cards == [CardKey("a1", uuid, part)]


def test_two_dies_that_share_a_serial_number_are_two_cards() -> None:
    dies = "".join(f'gpu_package_power{{hostname="a1",gpu_id="{i}",serial_number="S1"}} {400 + i}\n' for i in (0, 1))
    assert values(read(dies), Quantity.POWER_W) == {CardKey("a1", "S1/0"): 400, CardKey("a1", "S1/1"): 401}


def test_index_alone_is_no_card_of_nvidia() -> None:
    found = read('DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="n1"} 40\n')
    assert list(found.polls[0].cards) == []
    assert [finding.code for finding in found.findings] == ["metrics-without-card"]


def test_samples_keep_their_time_and_of_several_the_newest_counts() -> None:
    text = f"DCGM_FI_DEV_GPU_TEMP{{{OLD}}} 60 {int(NOW - 40)}000\nDCGM_FI_DEV_GPU_TEMP{{{OLD}}} 50 {int(NOW - 70)}000\n"
    column = read(text).polls[0].samples[Quantity.TEMP_C]
    assert (column.values.tolist(), column.times.tolist()) == ([60.0], [NOW - 40])


def test_evidence_of_others_is_read_where_it_is_named() -> None:
    text = f"lab_card_goodness{{{NEW}}} 0.4\n"
    assert only(polls_of_text(text, catalogue(evidence="lab_card_goodness"), NOW), Quantity.EVIDENCE) == 0.4


def test_every_quantity_has_a_source_or_is_made_by_others() -> None:
    named = {source.quantity for source in catalogue()}
    assert set(Quantity) - named == {Quantity.EVIDENCE}


def _result(*series: tuple[Mapping[str, str], Sequence[tuple[float, str]]]) -> list[dict[str, object]]:
    return [{"metric": dict(labels), "values": [list(point) for point in points]} for labels, points in series]


def test_answer_of_the_server_gives_values_with_the_times_of_the_samples() -> None:
    sources = catalogue()
    temperature = next(m for m in vendors(sources) if m.name == "DCGM_FI_DEV_GPU_TEMP")
    labels = {"Hostname": "n1", "UUID": UUID, "modelName": "H100"}
    at = [NOW, NOW + 30]
    result = _result(
        (labels, [(NOW, "40"), (NOW + 30, "41")]),
        ({"Hostname": "n1", TIME: "1"}, [(NOW, str(NOW - 12)), (NOW + 30, str(NOW + 18))]),
        ({"Hostname": "n2", "UUID": OTHER}, [(NOW, "70")]),
    )
    sets = LabelSets()
    rows = rows_of_result(temperature, Vendor.NVIDIA, result, at, sets)
    first, second = polls([rows], sets, sources, at, complete=True, nodes={}).polls
    assert [(p.samples[Quantity.TEMP_C].values.tolist(), p.samples[Quantity.TEMP_C].times.tolist()) for p in (first, second)] == [
        ([40.0], [NOW - 12]),
        ([41.0], [NOW + 18]),
    ], "the card whose time is not told counts as absent"


def _answered(values: Mapping[str, str], *, complete: bool) -> Poll:
    """Return the poll of answers of the server for one card of n1: the value of each metric by its name."""
    sources = catalogue()
    sets = LabelSets()
    place = {"Hostname": "n1"}
    rows = [
        rows_of_result(
            metric,
            Vendor.NVIDIA,
            [
                {"metric": {**place, "UUID": UUID}, "value": [NOW, values[metric.name]]},
                {"metric": {**place, TIME: "1"}, "value": [NOW, str(NOW - 3)]},
            ],
            [NOW],
            sets,
        )
        for metric in vendors(sources)
        if metric.name in values
    ]
    (poll,) = polls(rows, sets, sources, [NOW], complete=complete, nodes={}).polls
    return poll


def test_nothing_follows_from_what_is_absent_in_an_incomplete_answer() -> None:
    poll = _answered({"DCGM_FI_DEV_GPU_TEMP": "40"}, complete=False)
    assert not poll.complete
    assert set(poll.samples) == {Quantity.TEMP_C}


def test_sum_that_may_lack_a_part_is_no_sum() -> None:
    both = {"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "7", "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "5000"}
    one = {"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "7"}
    assert only(_answered(both, complete=True), Quantity.NVLINK_ERRORS) == 5007
    # 7 now and 5007 with the next poll would be 5000 errors that nobody made.
    assert only(_answered(one, complete=False), Quantity.NVLINK_ERRORS) is None
    # A card may have no more than that.
    assert only(_answered(one, complete=True), Quantity.NVLINK_ERRORS) == 7


def test_queries_ask_for_one_series_per_card_and_its_time() -> None:
    texts = {metric.name: query(metric, ("node",)) for metric in vendors(catalogue())}
    xids = texts["DCGM_EXP_XID_ERRORS_TOTAL"]
    assert xids.startswith("sum by (node, UUID,")
    assert 'xid!~"13|31|43|45|68|109"' in xids
    assert "rate(" not in "".join(texts.values())
    assert texts["gpu_health"].startswith("min by (node, UUID,")
    assert all("timestamp(" in text and TIME in text for text in texts.values())


def test_metric_that_two_quantities_use_is_asked_for_once() -> None:
    asked = [(metric.name, metric.where) for metric in vendors(catalogue())]
    assert len(asked) == len(set(asked))
    assert not any(math.isnan(metric.scale) for metric in vendors(catalogue()))
