"""Subgroups: members that one domain of a level must hold, in a group that may be wider."""

from __future__ import annotations

from dataclasses import replace

from pyscheduler.core.fabric.place import Place
from pyscheduler.core.gangs.membership import Subgroup
from pyscheduler.core.model import Code, PodRequest
from tests.builders import bound, member, node, planner, shown, uuids
from tests.unit.test_gangs import BOX, Shim, free, members, shim, show

# Four leaves of four nodes under two spines.
LEAVES: dict[str, tuple[str, ...]] = {f"n{i:02}": (f"leaf-{i // 4}", f"spine-{i // 8}") for i in range(16)}
PAIRS = Subgroup("tier-0", 2)


def leaf(name: str) -> str:
    return LEAVES[name][0]


def fabric(*busy: str) -> Shim:
    """Return the leaves, with nodes on which all GPUs are taken."""
    made = shim(*LEAVES, path=LEAVES)
    for name in busy:
        made.planner.cluster.observe_pod(bound(f"x-{name}", name, 8, uuids(BOX, name, *range(8))), 0.0)
    return made


def placed(made: Shim, pods: list[PodRequest]) -> list[str]:
    """Return the node of each member of a group that is placed now."""
    show(made, pods)
    return [made.place(each) for each in pods]


def refusal(made: Shim, pods: list[PodRequest]) -> tuple[Code, str]:
    show(made, pods)
    verdict = made.plan(pods[0]).verdict
    return verdict.code, verdict.reason


def started(made: Shim, pods: list[PodRequest]) -> list[str]:
    """Place a group and bind all of it."""
    names = placed(made, pods)
    for each, name in zip(pods, names, strict=True):
        made.planner.cluster.observe_pod(shown(each, name), made.now)
    return names


def subgroups(names: list[str], size: int) -> list[set[str]]:
    """Return the leaves of each block of consecutive ranks."""
    return [{leaf(name) for name in names[at : at + size]} for at in range(0, len(names), size)]


def test_no_subgroup_is_split_where_the_group_as_a_whole_would_be_packed_tighter():
    # Three nodes are free on each leaf: six pods fill two leaves, and three pairs do not fit there.
    made = fabric("n00", "n04", "n08", "n12")
    names = placed(made, members(6, subgroup=PAIRS))
    assert all(len(found) == 1 for found in subgroups(names, 2))
    assert len({leaf(name) for name in names}) == 3


def test_consecutive_ranks_are_a_subgroup_and_several_share_a_domain_in_the_order_of_the_tree():
    names = placed(fabric(), members(8, subgroup=PAIRS))
    assert subgroups(names, 2) == [{"leaf-0"}, {"leaf-0"}, {"leaf-1"}, {"leaf-1"}]
    assert names == sorted(names)


def test_last_subgroup_may_be_smaller_and_takes_what_the_others_leave():
    # One node is free on leaf-0: room for the last one alone.
    made = fabric("n00", "n01", "n02", *(f"n{i:02}" for i in range(8, 16)))
    names = placed(made, members(5, subgroup=PAIRS))
    assert subgroups(names, 2) == [{"leaf-1"}, {"leaf-1"}, {"leaf-0"}]


def test_members_of_one_name_are_a_subgroup_wherever_their_ranks_are():
    made = fabric("n00", "n01", "n04", "n05")
    pods = [
        member(f"job-{i}", 8, least=4, index=i, subgroup=Subgroup("tier-0", name=name), required_level="tier-1")
        for i, name in enumerate(["odd", "even", "odd", "even"])
    ]
    names = placed(made, pods)
    assert leaf(names[0]) == leaf(names[2])
    assert leaf(names[1]) == leaf(names[3])


def test_the_nearest_level_that_holds_all_subgroups_is_taken():
    # Leaves 0 and 2 have three free nodes, leaves 1 and 3 two: pairs of spine-0 are as good as any, and stay under one spine.
    made = fabric("n00", "n04", "n05", "n08", "n12", "n13")
    names = placed(made, members(4, subgroup=PAIRS))
    assert len({LEAVES[name][1] for name in names}) == 1


def test_group_that_one_domain_holds_is_placed_as_without_subgroups():
    assert placed(fabric("n00"), members(4, subgroup=PAIRS)) == placed(fabric("n00"), members(4))


def test_subgroup_on_one_node():
    made = fabric()
    for name in LEAVES:
        made.planner.cluster.observe_pod(bound(f"y-{name}", name, 2, uuids(BOX, name, 0, 1)), 0.0)
    names = placed(made, members(6, 3, subgroup=Subgroup("node", 2)))
    assert [names[at] for at in (0, 2, 4)] == [names[at] for at in (1, 3, 5)]
    assert len(set(names)) == 3


def test_without_a_level_the_nearest_one_that_is_wider_than_a_node_counts_and_without_any_there_is_no_limit():
    made = fabric("n00", "n01", "n02")
    names = placed(made, members(6, subgroup=Subgroup("#1", 3)))
    assert all(len(found) == 1 for found in subgroups(names, 3))
    assert len(set(placed(shim("a", "b", "c", "d"), members(4, subgroup=Subgroup("#1", 2))))) == 4


def test_required_level_is_a_limit_on_all_subgroups_together():
    # Two pairs have room on leaves 0 and 2, which are under different spines.
    made = fabric("n00", "n01", "n04", "n05", "n06", "n08", "n09", "n12", "n13", "n14")
    assert refusal(made, members(4, subgroup=PAIRS, required_level="tier-1"))[0] is Code.UNSCHEDULABLE
    assert [len(found) for found in subgroups(placed(made, members(4, group="w", subgroup=PAIRS)), 2)] == [1, 1]


def test_preferred_level_comes_before_nearer_ones_for_subgroups_too():
    made = fabric("n00", "n01", "n02", "n03")
    names = placed(made, members(4, subgroup=PAIRS, preferred_level="tier-1"))
    assert {LEAVES[name][1] for name in names} == {"spine-0"}


def test_group_whose_subgroups_do_not_fit_says_how_many_do_and_holds_nothing():
    made = fabric("n00", "n04", "n08", "n12")
    before = free(made)
    code, reason = refusal(made, members(10, subgroup=PAIRS))
    assert code is Code.UNSCHEDULABLE
    assert (
        "needs 5 subgroups of 2 pods of 8 GPUs, each within one tier-0; at most 4 of 5 fit: it would fit with each within one tier-1"
        in reason
    )
    assert free(made) == before
    assert "added would help" not in reason
    _, reason = refusal(made, members(5, group="other", subgroup=Subgroup("tier-0", 4), required_level="tier-1"))
    assert "needs 2 subgroups of up to 4 pods of 8 GPUs, each within one tier-0; at most 0 of 2 fit in one tier-1" in reason


def test_group_that_would_not_fit_without_subgroups_is_refused_for_its_gpus():
    _, reason = refusal(fabric(), members(20, subgroup=PAIRS))
    assert "subgroup" not in reason
    assert "needs 20 pods of 8 GPUs" in reason


def test_level_of_subgroups_that_is_not_known_names_those_that_are():
    code, reason = refusal(fabric(), members(4, subgroup=Subgroup("rack", 2)))
    assert code is Code.UNSCHEDULABLE
    assert "level rack" in reason
    assert "tier-0, tier-1" in reason


def test_group_waits_for_its_subgroups_and_goes_on_when_there_is_room():
    made, pods = fabric("n00", "n04", "n08", "n12"), members(4, subgroup=Subgroup("tier-0", 4))
    assert refusal(made, pods)[0] is Code.UNSCHEDULABLE
    made.planner.cluster.forget_pod(bound("x-n08", "n08").uid, 1.0)
    made.now = 10.0
    assert made.due() == ["job-0"]
    assert {leaf(name) for name in (made.place(each) for each in pods)} == {"leaf-2"}


def test_group_is_not_woken_for_what_is_free_where_no_subgroup_has_room():
    made, pods = fabric("n00", "n01", "n04", "n05", "n08", "n12"), members(4, subgroup=Subgroup("tier-0", 4))
    assert refusal(made, pods)[0] is Code.UNSCHEDULABLE
    made.planner.cluster.forget_pod(bound("x-n00", "n00").uid, 1.0)
    made.now = 10.0
    assert made.due() == []


def test_elastic_group_does_without_whole_subgroups_of_the_highest_ranks():
    made, pods = fabric(*(f"n{i:02}" for i in range(7, 16))), members(8, least=3, subgroup=PAIRS)
    show(made, pods)
    made.plan(pods[0])
    plan = made.planner.gangs.plans.all()[0]
    # Seven nodes are free, of leaves with four and three.
    assert sorted(plan.seats) == [f"job-{i}" for i in range(6)]


def test_least_number_is_rounded_up_to_whole_subgroups():
    made, pods = fabric(*(f"n{i:02}" for i in range(3, 16))), members(4, least=3, subgroup=PAIRS)
    code, _ = refusal(made, pods)
    assert code is Code.UNSCHEDULABLE
    assert free(made) == 24


def test_replaced_member_goes_to_the_domain_of_its_subgroup():
    made, pods = fabric(), members(8, subgroup=PAIRS, least=8)
    names = started(made, pods)
    made.planner.cluster.forget_pod(pods[7].uid, 1.0)
    # The node that it had is taken; the others of its leaf are too.
    made.planner.cluster.observe_pod(bound("z", names[7], 8, uuids(BOX, names[7], *range(8))), 2.0)
    late = member("job-7b", 8, least=8, index=7, subgroup=PAIRS)
    made.now = 20.0
    code, reason = refusal(made, [late])
    assert code is Code.UNSCHEDULABLE
    assert "in the tier-0 of the others of its subgroup" in reason
    made.planner.cluster.forget_pod(pods[5].uid, 21.0)
    made.now = 40.0
    assert leaf(placed(made, [late])[0]) == leaf(names[6])


def test_first_of_a_late_subgroup_goes_where_all_of_it_has_room():
    # One node of leaf-0 is left beside the first pair, and the others of its spine are taken: the next pair has room elsewhere.
    made = fabric("n00", "n04", "n05", "n06")
    first = members(2, subgroup=PAIRS)
    assert {leaf(name) for name in started(made, first)} == {"leaf-0"}
    late = [member(f"job-{i}", 8, least=2, index=i, subgroup=PAIRS) for i in (2, 3)]
    names = placed(made, late)
    assert len({leaf(name) for name in names}) == 1
    assert not {leaf(name) for name in names} & {"leaf-0", "leaf-1"}


def test_subgroups_that_are_alone_get_a_domain_each():
    names = placed(fabric(), members(6, subgroup=Subgroup("tier-0", 2, alone=True)))
    assert subgroups(names, 2) == [{"leaf-0"}, {"leaf-1"}, {"leaf-2"}]
    _, reason = refusal(fabric(), members(10, subgroup=Subgroup("tier-0", 2, alone=True)))
    assert "each within one tier-0 of its own; at most 4 of 5 fit" in reason


def test_pods_counted_by_role_do_not_count_a_master_that_is_in_no_subgroup():
    made = fabric("n00", "n01", "n04", "n05")
    workers = Subgroup("tier-0", 2, by_role=True)
    pods = [member("job-m", 8, least=5, index=0, role=(1, "master"))]
    pods += [member(f"job-{i}", 8, least=5, index=i, role=(3, "worker"), subgroup=workers) for i in range(4)]
    names = placed(made, pods)
    assert all(len(found) == 1 for found in subgroups(names[1:], 2))


def test_launcher_without_gpus_is_in_no_subgroup():
    made = fabric("n00")
    pods = [member("job-l", 0, least=5, role=(1, "launcher")), *members(4, least=5, subgroup=PAIRS)]
    show(made, pods)
    names = [made.place(each) for each in pods[1:]]
    assert all(len(found) == 1 for found in subgroups(names, 2))
    assert made.plan(pods[0]).verdict.code is Code.OK


def test_subgroups_of_members_with_different_requests_are_refused():
    made = fabric()
    pods = [*members(2, least=4, subgroup=PAIRS), *(member(f"w-{i}", 4, least=4, subgroup=PAIRS) for i in range(2))]
    code, reason = refusal(made, pods)
    assert code is Code.UNRESOLVABLE
    assert "subgroups among members with different requests" in reason


def test_domains_of_one_model_are_taken_first():
    kinds = {"a": "hgx-h100", "b": "hgx-a100", "c": "hgx-h100", "d": "hgx-a100", "e": "hgx-h100", "f": "hgx-h100"}
    paths = {"a": "l0", "b": "l0", "c": "l1", "d": "l1", "e": "l2", "f": "l3"}
    made = Shim(planner(*(node(name, kind, path=(paths[name], "s")) for name, kind in kinds.items())))
    names = placed(made, members(4, 4, subgroup=PAIRS))
    assert len({kinds[name] for name in names}) == 1
    assert all(len({paths[name] for name in names[at : at + 2]}) == 1 for at in (0, 2))


def test_domains_that_reach_into_two_racks_are_cut_where_the_rack_is_required():
    # NVLink domain x has a node in each rack; beside it each rack has one domain of two nodes.
    where = {"a": ("r1", "x"), "b": ("r2", "x"), "c": ("r1", "y"), "d": ("r1", "y"), "e": ("r2", "z"), "f": ("r2", "z")}

    def racks() -> Shim:
        places = {name: Place((("rack", rack),), nvlink_domain) for name, (rack, nvlink_domain) in where.items()}
        return Shim(planner(*(replace(node(name, BOX), place=place) for name, place in places.items())))

    names = placed(racks(), members(6, subgroup=Subgroup("nvlink-domain", 2)))
    assert [{where[name][1] for name in names[at : at + 2]} for at in (0, 2, 4)] == [{"x"}, {"y"}, {"z"}]
    code, reason = refusal(racks(), members(3, subgroup=Subgroup("nvlink-domain", 3), required_level="rack"))
    assert code is Code.UNSCHEDULABLE
    assert "each within one nvlink-domain; at most 0 of 1 fit in one rack" in reason


def test_room_of_the_framework_limits_what_a_domain_holds():
    made, pods = fabric(), members(8, subgroup=Subgroup("tier-0", 4))
    show(made, pods)
    # Three nodes of the first leaf have CPU for a member.
    answer = made.plan(pods[0], room=bytes([0, *[1] * 15]))
    assert answer.node is not None
    nodes = {seat.node for seat in made.planner.gangs.plans.all()[0].seats.values()}
    assert len(nodes) == 8
    assert not nodes & set(range(4))


def test_plan_of_lower_priority_gives_way_to_subgroups():
    made = fabric(*(f"n{i:02}" for i in range(4, 16)))
    low, high = members(2, group="low"), members(4, group="high", priority=9, subgroup=Subgroup("tier-0", 4))
    show(made, low)
    assert made.plan(low[0]).verdict.code is Code.OK
    assert {leaf(name) for name in placed(made, high)} == {"leaf-0"}


def test_late_member_of_a_group_with_a_required_level_waits_for_room_in_its_domain():
    made = fabric(*(f"n{i:02}" for i in range(2, 8)))
    pods = members(3, least=2, required_level="tier-0")
    started(made, pods[:2])
    code, reason = refusal(made, pods[2:])
    assert code is Code.UNSCHEDULABLE
    assert "tier-0" in reason
    made.planner.cluster.forget_pod(bound("x-n02", "n02").uid, 1.0)
    made.now = 20.0
    assert made.place(pods[2]) == "n02"
