"""Classes of machines of any links, measurements and refusals of peer access, against rules that are written out anew."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from statistics import median

from hypothesis import given, settings
from hypothesis import strategies as st

from pyscheduler.core.machine.classify import class_of, classify
from pyscheduler.core.machine.device_class import DeviceClass, TopologyPolicy, class_hash
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.document import Gpu, Measured, Nic, NodeDocument
from pyscheduler.core.machine.links import Link
from pyscheduler.core.machine.weights import Weights
from pyscheduler.readers import class_document

# GB/s of cards that are not named, and of a V100: PCIe 3, NVLinks of 20.
GBPS = {
    "NV1": 20.0,
    "NV4": 80.0,
    "XGMI1": 46.0,
    "PIX": 12.0,
    "PXB": 11.6,
    "PHB": 11.2,
    "NODE": 10.8,
    "PCIE": 10.4,
    "SYS": 10.0,
    "?": 0.0,
}
ORDER = list(GBPS)
NOW = 1_800_000_000.0
HALF_LIFE = Weights().half_life_s
# Half an eighth of a doubling is lost, and half a MB/s.
STEP = 2 ** (1 / 16)
Pair = tuple[int, int]
few = settings(max_examples=300, deadline=None)


@st.composite
def machines(draw: st.DrawFn, most: int = 6) -> NodeDocument:
    """Any links of a few types, with NUMA nodes that are known or not."""
    n = draw(st.integers(2, most))
    kinds = draw(st.lists(st.sampled_from(ORDER), min_size=1, max_size=3))
    gpus = tuple(
        Gpu(f"GPU{i}", model=draw(st.sampled_from([None, "Tesla V100"])), numa=draw(st.sampled_from([0, 1, None])))
        for i in range(n)
    )
    return NodeDocument(gpus, links={pair: Link.parse(draw(st.sampled_from(kinds))) for pair in combinations(range(n), 2)})


AGES = st.sampled_from([None, -5.0, 0.0, 0.25, 1.0, 3.0, 3.99, 4.01, 100.0])


@st.composite
def measured(draw: st.DrawFn) -> NodeDocument:
    """A machine with results of any pairs, of any age, from a tenth of what is right to ten times that."""
    document = draw(machines())
    results = []
    for _ in range(draw(st.integers(0, 12))):
        a, b = draw(st.permutations(range(len(document.gpus))))[:2]
        right = GBPS[str(document.link(a, b))] or 10.0
        factor = draw(st.sampled_from([0.01, 0.3, 0.65, 0.75, 0.97, 1.0, 1.03, 2.0, 7.9, 8.5, 1e300]))
        age = draw(AGES)
        at = None if age is None else NOW - age * HALF_LIFE
        results.append(Measured("p2p-bandwidth", right * factor, (f"GPU{a}", f"GPU{b}"), observed_at=at))
    return replace(document, measured=tuple(results))


def expected_speeds(document: NodeDocument) -> tuple[dict[Pair, float], dict[str, int]]:
    """Return the GB/s of each pair, and how many findings there are of each kind."""
    default = {pair: GBPS[str(link)] for pair, link in document.links.items()}
    age = {id(r): max(0.0, NOW - r.observed_at) / HALF_LIFE if r.observed_at is not None else 0.0 for r in document.measured}
    newest: dict[Pair, Measured] = {}
    for result in document.measured:
        a, b = sorted(int(gpu[3:]) for gpu in result.gpus)
        known = newest.get((a, b))
        if age[id(result)] <= 4 and (known is None or (result.observed_at or 0.0) >= (known.observed_at or 0.0)):
            newest[a, b] = result
    good = {pair: r for pair, r in newest.items() if 0 < r.gbps <= 8 * default[pair]}
    speeds, slow = dict(default), 0
    for pair, right in default.items():
        peers = {p: r for p, r in good.items() if document.links[p] == document.links[pair]}
        usual = median(r.gbps for r in peers.values()) if len(peers) >= 3 else None
        own = peers.get(pair)
        limit = 0.7 * usual if usual else 0.5 * right
        far_below = own is not None and own.gbps < limit
        slow += far_below
        if usual and not far_below:
            latest = max(peers.values(), key=lambda r: r.observed_at or 0.0)
            found, left = usual, 0.5 ** age[id(latest)]
        elif own is not None:
            found, left = own.gbps, 0.5 ** age[id(own)]
        else:
            continue
        speeds[pair] = right * (found / right) ** left
    return speeds, {"link-slow": slow, "measurement-implausible": len(newest) - len(good)}


@settings(max_examples=800, deadline=None)
@given(measured())
def test_speeds_and_findings_are_those_of_the_rules(document: NodeDocument) -> None:
    shared = class_of(document)
    found, told = classify(document, shared, Weights(), NOW)
    speeds, counts = expected_speeds(document)
    mbps = dict(zip(document.links, found.speeds or [round(1000 * GBPS[str(link)]) for link in shared.links], strict=True))
    for pair, speed in speeds.items():
        assert mbps[pair] == 0 if speed == 0 else math.isclose(mbps[pair], 1000 * speed, rel_tol=STEP - 1 + 0.005), pair
    assert {code: sum(finding.code == code for finding in told) for code in counts} == counts
    assert len(told) == sum(counts.values())
    assert found.links == shared.links


@few
@given(measured(), st.floats(0, 5))
def test_older_is_never_farther_from_the_default(document: NodeDocument, half_lives: float) -> None:
    document = replace(document, measured=tuple(replace(result, observed_at=NOW) for result in document.measured))
    shared = class_of(document)
    new, old = (classify(document, shared, Weights(), NOW + age * HALF_LIFE)[0] for age in (0.0, half_lives))
    default = [round(1000 * GBPS[str(link)]) for link in shared.links]
    for right, young, aged in zip(default, new.speeds or default, old.speeds or default, strict=True):
        if right:
            assert abs(math.log2(aged / right)) <= abs(math.log2(young / right)) + 1 / 8 + 0.001


@few
@given(machines(most=5), st.data())
def test_a_pair_without_peer_access_is_never_better_than_its_link_or_than_the_host_path(
    document: NodeDocument, data: st.DataObject
) -> None:
    pairs = list(document.links)
    refused = data.draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    document = replace(document, p2p=dict.fromkeys(refused, "CNS"))
    shared = class_of(document)
    found, told = classify(document, shared, Weights(), NOW)
    before, after = DeviceTable.build(shared), DeviceTable.build(found)
    assert told == ()
    for a, b in pairs:
        mask = 1 << a | 1 << b
        direct, real = before.choose(mask, 2), after.choose(mask, 2)
        assert direct
        assert real
        link = str(document.links[a, b])
        numa = document.gpus[a].numa
        host = "PHB" if numa is not None and numa == document.gpus[b].numa else "SYS"
        weakest = max(link, host, key=ORDER.index) if (a, b) in refused else link
        assert real.bottleneck == weakest
        assert real.ring_gbps == min(GBPS[weakest], GBPS[link])
        assert real.ring_gbps <= direct.ring_gbps
    whole = (1 << len(document.gpus)) - 1
    for k in range(2, len(document.gpus) + 1):
        direct, real = before.choose(whole, k), after.choose(whole, k)
        assert direct
        assert real
        assert real.ring_gbps <= direct.ring_gbps


@st.composite
def classes(draw: st.DrawFn) -> DeviceClass:
    """What a document says of any machine, with NICs."""
    document = draw(machines())
    nics = tuple(Nic(f"NIC{i}") for i in range(draw(st.integers(0, 2))))
    links = {
        (gpu, nic): Link.parse(draw(st.sampled_from(["PIX", "SYS"])))
        for gpu in range(len(document.gpus))
        for nic in range(len(nics))
    }
    policy = draw(st.sampled_from([None, "none", "best-effort", "restricted", "single-numa-node"]))
    return class_of(replace(document, nics=nics, nic_links=links, topology_policy=policy))


@few
@given(classes())
def test_every_class_survives_a_round_trip(shared: DeviceClass) -> None:
    assert class_document.parse(class_document.dump(shared)) == (class_hash(shared), shared)


@few
@given(classes(), st.sampled_from(TopologyPolicy), st.sampled_from(TopologyPolicy))
def test_policies_that_restrict_nothing_share_a_class(shared: DeviceClass, one: TopologyPolicy, two: TopologyPolicy) -> None:
    alike = one is two or {one, two} <= {TopologyPolicy.NONE, TopologyPolicy.BEST_EFFORT}
    assert (class_hash(replace(shared, policy=one)) == class_hash(replace(shared, policy=two))) == alike
