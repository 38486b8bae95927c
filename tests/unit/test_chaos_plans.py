"""The plans of the chaos run: the same for the same seed, and everything that is to happen does."""

from __future__ import annotations

from itertools import islice

from deploy.local import chaos_faults, chaos_plans
from deploy.local.chaos_faults import VICTIMS, Deed

RUN_S = (1.0, 6.0)


def test_plans_follow_from_the_seed() -> None:
    for plan in (chaos_faults.plan, lambda seed: chaos_plans.pods(seed, RUN_S), lambda seed: chaos_plans.troubles(seed, 6)):
        first, again, other = (list(islice(plan(seed), 40)) for seed in (1, 1, 2))
        assert first == again
        assert first != other


def test_each_round_does_everything_to_every_component() -> None:
    per_round = 2 * len(VICTIMS) + 2
    faults = list(islice(chaos_faults.plan(3), 3 * per_round))
    for begin in range(0, len(faults), per_round):
        done = {(fault.deed, fault.victims) for fault in faults[begin : begin + per_round]}
        assert {(deed, (victim,)) for deed in Deed for victim in VICTIMS} <= done
        assert sum(len(fault.victims) == 2 for fault in faults[begin : begin + per_round]) == 2


def test_pods_are_of_every_kind() -> None:
    plans = list(islice(chaos_plans.pods(1, RUN_S), 500))
    assert len({plan.name for plan in plans}) == len(plans)
    assert {sum(plan.containers) for plan in plans} == {1, 2, 4, 8}
    for kind in ("init", "evictable", "grace_s", "completions"):
        assert {bool(getattr(plan, kind)) for plan in plans} == {True, False}, kind
    assert any(plan.deleted_after_s is not None for plan in plans)
    assert any(len(plan.containers) > 1 for plan in plans)
    assert all(RUN_S[0] <= plan.run_s <= RUN_S[1] for plan in plans)


def test_nodes_suffer_every_trouble() -> None:
    troubles = list(islice(chaos_plans.troubles(1, 6), 100))
    assert {str(trouble) for trouble in troubles} == {"lost GPUs", "not ready", "cordoned"}
    assert {trouble.node for trouble in troubles} == set(range(6))
