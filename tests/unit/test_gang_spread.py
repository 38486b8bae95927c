"""Groups that are spread: the fewest members are lost with one domain."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pyscheduler.core.gangs.membership import Subgroup
from pyscheduler.core.model import Code
from tests.builders import bound, member, node, planner, uuids
from tests.unit.test_gang_subgroups import LEAVES, fabric, leaf, placed, refusal, started
from tests.unit.test_gangs import Shim, members, shim, show


def spine(name: str) -> str:
    return LEAVES[name][1]


def test_members_go_to_as_many_nodes_as_there_are():
    assert sorted(Counter(placed(fabric(), members(16, 2, spread_level="node"))).values()) == [1] * 16


@pytest.mark.parametrize(("count", "counts"), [(3, [1, 1, 1]), (4, [1, 1, 1, 1]), (6, [1, 1, 2, 2]), (9, [2, 2, 2, 3])])
def test_counts_of_domains_differ_by_one_at_most(count: int, counts: list[int]):
    names = placed(fabric(), members(count, spread_level="tier-0"))
    assert sorted(Counter(map(leaf, names)).values()) == counts


def test_domain_without_room_gets_what_it_can_and_the_others_share_the_rest():
    made = fabric("n00", "n01", "n02")
    names = placed(made, members(10, spread_level="tier-0"))
    assert sorted(Counter(map(leaf, names)).values()) == [1, 3, 3, 3]


def test_of_equal_domains_the_tightest_take_the_first_members():
    names = placed(fabric("n04", "n13"), members(2, spread_level="tier-0"))
    assert {leaf(name) for name in names} == {"leaf-1", "leaf-3"}


def test_required_level_holds_all_that_is_spread():
    names = placed(fabric(), members(6, spread_level="tier-0", required_level="tier-1"))
    assert len({spine(name) for name in names}) == 1
    assert sorted(Counter(map(leaf, names)).values()) == [3, 3]


def test_of_required_domains_the_one_with_the_most_even_counts_is_taken():
    names = placed(fabric("n00", "n01", "n02"), members(4, spread_level="tier-0", required_level="tier-1"))
    assert {spine(name) for name in names} == {"spine-1"}


def test_preferred_level_is_tried_first_and_left_where_it_has_no_room():
    small = placed(fabric(), members(4, spread_level="tier-0", preferred_level="tier-1"))
    large = placed(fabric(), members(10, spread_level="tier-0", preferred_level="tier-1"))
    assert (len(set(map(spine, small))), len(set(map(spine, large)))) == (1, 2)
    assert sorted(Counter(map(leaf, large)).values()) == [2, 2, 3, 3]


def test_even_counts_come_before_links():
    # Two GPUs of box b are left, on two CPUs; of a all are free.
    made = Shim(planner(node("a", "dgx-1v"), node("b", "dgx-1v")))
    made.planner.cluster.observe_pod(bound("x", "b", 6, uuids("dgx-1v", "b", 0, 1, 2, 4, 5, 6)), 0.0)
    assert sorted(placed(made, members(2, 2, spread_level="node"))) == ["a", "b"]


def test_members_in_one_domain_are_packed_there_as_always():
    names = placed(fabric(), members(8, 2, spread_level="tier-1"))
    assert sorted(Counter(names).values()) == [4, 4]
    assert len(set(map(spine, names))) == 2


def test_subgroups_are_what_is_spread():
    names = placed(fabric(), members(8, spread_level="tier-1", subgroup=Subgroup("tier-0", 2)))
    assert [len({leaf(name) for name in names[at : at + 2]}) for at in (0, 2, 4, 6)] == [1, 1, 1, 1]
    assert sorted(Counter(map(spine, names)).values()) == [4, 4]


def test_spread_over_less_than_holds_a_subgroup_is_over_the_level_of_subgroups():
    names = placed(fabric(), members(8, spread_level="node", subgroup=Subgroup("tier-0", 2)))
    assert sorted(Counter(map(leaf, names)).values()) == [2, 2, 2, 2]


def test_elastic_group_starts_with_as_many_as_fit():
    made, pods = fabric(*(f"n{i:02}" for i in range(3, 16))), members(6, least=2, spread_level="node")
    show(made, pods)
    made.plan(pods[0])
    assert sorted(made.planner.gangs.plans.all()[0].seats) == ["job-0", "job-1", "job-2"]


def test_level_that_is_not_known_names_those_that_are():
    code, reason = refusal(fabric(), members(4, spread_level="rack"))
    assert code is Code.UNSCHEDULABLE
    assert "level rack" in reason
    assert "tier-0, tier-1" in reason


def test_late_member_goes_to_a_domain_with_the_fewest_others():
    made = fabric()
    names = started(made, members(7, least=7, spread_level="tier-0"))
    few = Counter(map(leaf, names)).most_common()[-1][0]
    late = member("job-7", 8, least=7, index=7, spread_level="tier-0")
    assert leaf(placed(made, [late])[0]) == few


def test_late_member_goes_where_there_is_room_and_stays_in_the_required_level():
    made = fabric("n06", "n07")
    pods = members(6, least=6, spread_level="tier-0", required_level="tier-1")
    names = started(made, pods)
    late = [member(f"job-{i}", 8, least=6, index=i, spread_level="tier-0", required_level="tier-1") for i in (6, 7, 8)]
    more = placed(made, late[:2])
    assert {spine(name) for name in (*names, *more)} == {spine(names[0])}
    assert refusal(made, late[2:])[0] is Code.UNSCHEDULABLE


def test_late_subgroup_goes_to_a_domain_with_the_fewest_others_that_holds_all_of_it():
    made, pairs = fabric("n04", "n05", "n06"), Subgroup("tier-0", 2)
    said: dict[str, Any] = {"least": 4, "spread_level": "tier-0", "subgroup": pairs}
    names = started(made, members(4, **said))
    late = [member(f"job-{i}", 8, index=i, **said) for i in (4, 5)]
    more = placed(made, late)
    assert {leaf(name) for name in more} == {f"leaf-{at}" for at in (0, 2, 3)} - {leaf(name) for name in names}


def test_without_levels_wider_than_a_node_there_is_nothing_to_spread_over():
    assert len(set(placed(shim("a", "b"), members(2, 4, spread_level="#1")))) == 1


def test_kinds_of_members_are_spread_each_by_itself():
    made = fabric()
    large = [member(f"job-{i}", 8, least=8, index=i, role=(1, "prefill"), spread_level="tier-0") for i in range(4)]
    small = [member(f"job-d{i}", 4, least=8, index=i, role=(2, "decode"), spread_level="tier-0") for i in range(4)]
    names = placed(made, [*large, *small])
    assert sorted(Counter(map(leaf, names[:4])).values()) == [1, 1, 1, 1]
    assert sorted(Counter(map(leaf, names[4:])).values()) == [1, 1, 1, 1]
