"""What holds for every layout: predictions are finite and positive, and worse networks never make them better."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pyscheduler.core.comm_model import Collective, Layout, Links, Network, NodeShare, Prediction, predict

RATES = st.floats(0.1, 2000.0)
SHARES = st.builds(
    NodeShare,
    gpus=st.integers(1, 16),
    ring_gbps=RATES,
    nic_gbps=RATES,
    nic_shared=st.booleans(),
    links=st.sampled_from(Links),
    model=st.sampled_from([None, "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA GB200", "AMD Instinct MI300X"]),
    measured=st.booleans(),
    nvlink_domain=st.sampled_from([None, None, "rack-a", "rack-b"]),
)
LAYOUTS = st.builds(
    Layout,
    st.lists(SHARES, min_size=1, max_size=8).map(tuple),
    hops=st.integers(0, 4),
    oversubscription=st.floats(1.0, 16.0),
).filter(lambda layout: layout.ranks > 1)
NETWORKS = st.builds(
    Network,
    efficiency=st.floats(0.1, 1.0),
    crowd_ranks=st.integers(1, 60),
    crowd_efficiency=st.floats(0.1, 1.0),
    peer_gbps=st.none() | RATES,
)
SIZES = st.floats(1.0, 1e12)
COLLECTIVES = st.sampled_from(Collective)


def predicted(layout: Layout, size: float, collective: Collective, network: Network) -> Prediction:
    """The prediction, which is there where every rate is known."""
    answer = predict(layout, size, collective, network)
    assert answer is not None
    return answer


def no_longer(shorter: float, longer: float) -> bool:
    return shorter <= longer * (1 + 1e-9)


@given(LAYOUTS, SIZES, COLLECTIVES, NETWORKS)
def test_a_prediction_is_finite_and_positive(layout: Layout, size: float, collective: Collective, network: Network) -> None:
    answer = predicted(layout, size, collective, network)
    assert 0 < answer.seconds < math.inf
    assert 0 < answer.busbw_gbps < math.inf


@given(LAYOUTS, SIZES, SIZES, COLLECTIVES, NETWORKS)
def test_larger_messages_never_take_less_time(
    layout: Layout, one: float, other: float, collective: Collective, network: Network
) -> None:
    small, large = sorted((one, other))
    assert no_longer(predicted(layout, small, collective, network).seconds, predicted(layout, large, collective, network).seconds)


@given(LAYOUTS, SIZES, COLLECTIVES, NETWORKS, st.floats(1.0, 8.0), st.integers(0, 3))
def test_higher_and_narrower_levels_never_take_less_time(
    layout: Layout, size: float, collective: Collective, network: Network, narrower: float, higher: int
) -> None:
    up = replace(layout, oversubscription=layout.oversubscription * narrower, hops=layout.hops + higher)
    assert no_longer(predicted(layout, size, collective, network).seconds, predicted(up, size, collective, network).seconds)


@given(LAYOUTS, SIZES, COLLECTIVES, NETWORKS, st.floats(1.0, 8.0), st.data())
def test_faster_links_and_nics_never_take_more_time(
    layout: Layout, size: float, collective: Collective, network: Network, faster: float, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(layout.shares) - 1))
    share = layout.shares[at]
    better = replace(share, ring_gbps=share.ring_gbps * faster, nic_gbps=share.nic_gbps * faster)
    improved = replace(layout, shares=(*layout.shares[:at], better, *layout.shares[at + 1 :]))
    assert no_longer(predicted(improved, size, collective, network).seconds, predicted(layout, size, collective, network).seconds)


@given(LAYOUTS, SIZES, COLLECTIVES, NETWORKS, st.randoms(use_true_random=False))
def test_the_order_of_nodes_does_not_matter(
    layout: Layout, size: float, collective: Collective, network: Network, random
) -> None:
    shuffled = list(layout.shares)
    random.shuffle(shuffled)
    other = predicted(replace(layout, shares=tuple(shuffled)), size, collective, network)
    assert math.isclose(other.seconds, predicted(layout, size, collective, network).seconds)


@given(st.lists(SHARES, min_size=2, max_size=8), NETWORKS, st.floats(1.0, 16.0))
def test_no_more_comes_out_than_the_node_with_least_network_has(
    shares: list[NodeShare], network: Network, oversubscription: float
) -> None:
    apart = tuple(replace(share, nvlink_domain=None) for share in shares)
    layout = Layout(apart, oversubscription=oversubscription)
    least = min(share.network_gbps for share in apart)
    assert no_longer(predicted(layout, 1e12, Collective.ALLREDUCE, network).busbw_gbps, least / oversubscription)
