"""Groups whose members differ: in GPUs, or in the nodes that they may use."""

from __future__ import annotations

import pytest

from pyscheduler.core.gangs.membership import Subgroup
from pyscheduler.core.model import Code, PodRequest, PodUid
from pyscheduler.core.refusals import Eligible
from tests.builders import bound, member, node, only, planner, shown, uuids
from tests.unit.test_gangs import BOX, Shim, free, show

OTHER = "hgx-a100"


def fleet(**nodes: tuple[str, ...]) -> Shim:
    """Return a shim of nodes: by name the kind of machine, then its domains."""
    return Shim(planner(*(node(name, kind, path=tuple(path)) for name, (kind, *path) in nodes.items())))


def group(*gpus: int, **said: object) -> list[PodRequest]:
    return [member(f"job-{i}", each, index=i, least=len(gpus), **said) for i, each in enumerate(gpus)]  # type: ignore[arg-type]


def taken(made: Shim, name: str, on: str, gpus: int, kind: str = BOX) -> None:
    made.planner.cluster.observe_pod(bound(name, on, gpus, uuids(kind, on, *range(gpus))), made.now)


def refusal(made: Shim, pods: list[PodRequest]) -> str:
    """Return why the group is refused, which holds nothing then."""
    before = free(made)
    verdict = made.plan(pods[0]).verdict
    assert verdict.code is not Code.OK
    assert (free(made), made.planner.gangs.plans.all()) == (before, [])
    return verdict.reason


RACKS = {"a": (BOX, "r1", "s"), "b": (BOX, "r2", "s"), "c": (BOX, "r2", "s")}


@pytest.mark.parametrize("gpus", [(8, 4), (4, 8), (8, 4, 2), (4, 4, 8)])
def test_all_kinds_go_into_one_domain_of_the_required_level(gpus: tuple[int, ...]):
    made, pods = fleet(**RACKS), group(*gpus, required_level="tier-0")
    show(made, pods)
    assert {made.place(each) for each in pods} == {"b", "c"}


def test_all_kinds_go_into_one_domain_of_the_preferred_level():
    made, pods = fleet(**RACKS), group(8, 4, preferred_level="tier-0")
    show(made, pods)
    assert {made.place(each) for each in pods} == {"b", "c"}


def test_kinds_go_into_the_nearest_domain_that_holds_all_and_the_tightest_of_these():
    made = fleet(a=(BOX, "r1", "s"), b=(BOX, "r2", "s"), c=(BOX, "r2", "s"), d=(BOX, "r3", "s"), e=(BOX, "r3", "s"))
    taken(made, "x", "e", 4)
    pods = group(8, 4)
    show(made, pods)
    assert [made.place(each) for each in pods] == ["d", "e"]


def test_kinds_that_fit_one_node_share_it():
    made, pods = fleet(**RACKS), group(4, 2, 2)
    show(made, pods)
    assert len({made.place(each) for each in pods}) == 1


def test_large_members_find_room_though_the_small_ones_ask_for_as_much_in_all():
    made, pods = fleet(a=(BOX,), b=(BOX,), c=(BOX,)), group(4, 2, 4, 8)
    taken(made, "x", "a", 2)
    taken(made, "y", "c", 4)
    show(made, pods)
    assert [made.place(each) for each in pods][-1] == "b"


def test_elastic_group_of_two_kinds_does_without_members_until_all_kinds_fit():
    made = fleet(a=(BOX, "r1", "s"), b=(BOX, "r1", "s"), c=(BOX, "r2", "s"))
    pods = [member(f"job-{i}", gpus, index=i, least=2, required_level="tier-0") for i, gpus in enumerate((8, 8, 8, 4))]
    show(made, pods)
    answers = [made.plan(each) for each in pods]
    assert [answer.verdict.code for answer in answers] == [Code.OK, Code.UNSCHEDULABLE, Code.UNSCHEDULABLE, Code.OK]


def test_refusal_of_kinds_that_do_not_fit_together_has_the_numbers_of_all_and_says_what_would_do():
    made, pods = fleet(a=(BOX, "r1", "s"), b=(BOX, "r2", "s")), group(8, 4, required_level="tier-0")
    show(made, pods)
    reason = refusal(made, pods)
    assert reason.startswith("its group default/job needs 1 pod of 8 GPUs and 1 pod of 4 GPUs, within one tier-0; ")
    assert "16 GPUs are free in all" in reason
    assert reason.endswith(": it would fit within one tier-1")


def test_refusal_for_one_kind_names_the_others():
    made, pods = fleet(a=(BOX, "r1", "s"), b=(BOX, "r1", "s")), group(8, 8, 8, 4)
    show(made, pods)
    reason = refusal(made, pods)
    assert "needs 3 pods of 8 GPUs and 1 pod of 4 GPUs, and there is no room for 3 pods of 8 GPUs; 2 of them fit" in reason


def test_group_of_two_kinds_is_woken_only_when_all_have_room():
    made, pods = fleet(a=(BOX, "r1", "s"), b=(BOX, "r1", "s")), group(8, 4, required_level="tier-0")
    taken(made, "x", "a", 1)
    taken(made, "y", "b", 6)
    show(made, pods)
    refusal(made, pods)
    made.planner.cluster.forget_pod(PodUid("x"), made.now)
    assert made.due() == []
    made.planner.cluster.forget_pod(PodUid("y"), made.now)
    assert made.due() == ["job-0"]
    assert {made.place(each) for each in pods} == {"a", "b"}


def test_same_model_holds_for_all_kinds():
    made, pods = fleet(a=(BOX,), b=(OTHER,)), group(8, 4, same_model=True)
    show(made, pods)
    reason = refusal(made, pods)
    assert "needs 1 pod of 8 GPUs and 1 pod of 4 GPUs, of one model" in reason
    assert reason.endswith(": it would fit with GPUs of several models")
    wide = fleet(a=(BOX,), b=(OTHER,), c=(OTHER,))
    show(wide, pods)
    assert [wide.place(each) for each in pods] == ["b", "c"]


def test_kinds_get_gpus_of_one_model_if_that_is_possible_though_not_asked():
    made, pods = fleet(a=(BOX, "r1", "s"), b=(OTHER, "r1", "s"), c=(OTHER, "r2", "s")), group(8, 4)
    show(made, pods)
    assert {made.place(each) for each in pods} == {"b", "c"}
    narrow = fleet(a=(BOX,), b=(OTHER,))
    show(narrow, pods)
    assert {narrow.place(each) for each in pods} == {"a", "b"}


def test_no_two_members_of_any_kind_are_on_one_node_where_that_is_asked():
    made, pods = fleet(a=(BOX,)), group(4, 2, one_pod_per_node=True)
    show(made, pods)
    reason = refusal(made, pods)
    assert "needs 1 pod of 4 GPUs and 1 pod of 2 GPUs, one pod per node" in reason
    assert reason.endswith(": it would fit with several pods per node")
    wide = fleet(a=(BOX,), b=(BOX,))
    show(wide, pods)
    assert sorted(wide.place(each) for each in pods) == ["a", "b"]


# -- members that may use different nodes -------------------------------------------------------------------------------


def nodes(made: Shim, *names: str) -> Eligible:
    table = made.planner.cluster.table.names
    return only(*(table.index(name) for name in names), known=len(table))


def place(made: Shim, pod: PodRequest, among: Eligible) -> str:
    answer = made.plan(pod, eligible=among)
    assert answer.verdict.code is Code.OK, answer.verdict
    assert made.reserve(pod, answer)[0] is Code.OK
    return made.planner.cluster.table.names[answer.node or 0]


def test_members_that_are_pinned_to_one_node_each_are_placed_when_both_have_asked():
    made, pods = fleet(a=(BOX,), b=(BOX,)), group(8, 8)
    show(made, pods)
    assert made.plan(pods[0], eligible=nodes(made, "a")).verdict.code is Code.UNSCHEDULABLE
    assert place(made, pods[1], nodes(made, "b")) == "b"
    assert made.due() == ["job-0"]
    assert place(made, pods[0], nodes(made, "a")) == "a"


def test_member_that_was_placed_where_it_may_not_be_gets_another_place_as_soon_as_it_asks():
    made, pods = fleet(a=(BOX,), b=(BOX,)), group(4, 4)
    show(made, pods)
    first = made.plan(pods[0], eligible=nodes(made, "a"))
    assert first.member is not None
    assert place(made, pods[1], nodes(made, "b")) == "b"
    assert made.planner.gangs.plans.take_ended() == [first.member.plan]
    assert place(made, pods[0], nodes(made, "a")) == "a"


def test_members_of_two_pools_are_each_placed_in_their_own():
    made, pods = fleet(a=(BOX,), b=(BOX,), c=(OTHER,), d=(OTHER,)), group(8, 8, 8, 8)
    show(made, pods)
    pools = [nodes(made, "a", "b"), nodes(made, "c", "d")]
    for i, each in enumerate(pods[:2]):
        assert made.plan(each, eligible=pools[i % 2]).verdict.code is Code.UNSCHEDULABLE
    # The third one asks; of the fourth nothing is known yet.
    made.plan(pods[2], eligible=pools[0])
    placed = [place(made, each, pools[i % 2]) for i, each in reversed(list(enumerate(pods)))]
    assert placed[::2] == ["d", "c"] or placed[::2] == ["c", "d"]
    assert sorted(placed[1::2]) == ["a", "b"]


def test_member_that_has_few_nodes_gets_them_before_those_that_have_many():
    made, pods = fleet(a=(BOX,), b=(BOX,), c=(BOX,)), group(8, 8, 8)
    show(made, pods)
    taken(made, "x", "c", 1)
    assert made.plan(pods[2], eligible=nodes(made, "a")).verdict.code is Code.UNSCHEDULABLE
    for each in pods[:2]:
        assert made.plan(each, eligible=nodes(made, "a", "b", "c")).verdict.code is Code.UNSCHEDULABLE
    made.planner.cluster.forget_pod(PodUid("x"), made.now)
    assert made.due() == ["job-0"]
    assert sorted(place(made, each, nodes(made, "a", "b", "c")) for each in pods[:2]) == ["b", "c"]
    assert place(made, pods[2], nodes(made, "a")) == "a"


def test_group_is_woken_when_the_node_that_one_member_is_pinned_to_is_free():
    made, pods = fleet(a=(BOX,), b=(BOX,), c=(BOX,)), group(8, 8)
    taken(made, "x", "b", 1)
    show(made, pods)
    made.plan(pods[0], eligible=nodes(made, "a"))
    reason = made.plan(pods[1], eligible=nodes(made, "b")).verdict.reason
    assert (
        "needs 1 pod of 8 GPUs (1 eligible node) and 1 pod of 8 GPUs (1 eligible node), and there is no room for 8 GPUs on one node; the largest free hole is 7 (b)"
        in reason
    )
    assert made.due() == []
    made.planner.cluster.forget_pod(PodUid("x"), made.now)
    assert made.due() == ["job-0"]
    assert place(made, pods[0], nodes(made, "a")) == "a"
    assert place(made, pods[1], nodes(made, "b")) == "b"


def test_members_whose_nodes_change_are_alike_as_before():
    made, pods = fleet(a=(BOX,), b=(BOX,), c=(BOX,)), group(8, 8)
    show(made, pods)
    for name, gpus in (("b", 1), ("c", 1)):
        taken(made, f"on-{name}", name, gpus)
    for each in pods:
        assert made.plan(each, eligible=nodes(made, "a", "b", "c")).verdict.code is Code.UNSCHEDULABLE
    made.planner.cluster.forget_pod(PodUid("on-b"), made.now)
    made.planner.cluster.forget_pod(PodUid("on-c"), made.now)
    # Node a takes no new pods from now on, and the second member was not asked about since.
    assert place(made, pods[0], nodes(made, "b", "c")) in "bc"
    assert place(made, pods[1], nodes(made, "b", "c")) in "bc"


def test_subgroups_of_members_of_several_sets_go_where_all_may():
    subgroup = Subgroup("tier-0", size=2)
    made, pods = (
        fleet(a=(BOX, "r1", "s"), b=(BOX, "r1", "s"), c=(BOX, "r2", "s"), d=(BOX, "r2", "s")),
        group(8, 8, subgroup=subgroup),
    )
    show(made, pods)
    sets = nodes(made, "a", "b", "c", "d"), nodes(made, "c", "d")
    made.plan(pods[0], eligible=sets[0])
    placed = [place(made, pods[1], sets[1]), place(made, pods[0], sets[0])]
    assert sorted(placed) == ["c", "d"]


def test_pods_of_lower_priority_make_room_on_the_nodes_of_each_member():
    made, pods = fleet(a=(BOX,), b=(BOX,)), group(8, 8, priority=5)
    taken(made, "x", "b", 1)
    show(made, pods)
    assert made.plan(pods[0], eligible=nodes(made, "a"), room=bytes([9])).verdict.code is Code.UNSCHEDULABLE
    assert made.plan(pods[1], eligible=nodes(made, "b"), room=bytes([9])).verdict.code is Code.UNSCHEDULABLE
    found = made.planner.gangs.make_room(pods[0], nodes(made, "a"), bytes([9]), (), made.now)
    assert found is not None
    assert found.victims == ("x",)


# -- members that come late ---------------------------------------------------------------------------------------------


def run(made: Shim, pods: list[PodRequest]) -> list[str]:
    """Place a group and bind it; return its nodes."""
    names = [made.place(each) for each in pods]
    for each, name in zip(pods, names, strict=True):
        made.planner.cluster.observe_pod(shown(each, name), made.now)
    return names


def test_late_member_is_on_no_node_of_the_others_where_that_is_asked():
    made, pods = fleet(a=(BOX,), b=(BOX,)), group(2, one_pod_per_node=True)
    show(made, pods)
    first = run(made, pods)
    late = [member(f"late-{i}", 2, index=1 + i, least=1, one_pod_per_node=True) for i in range(2)]
    show(made, late)
    assert sorted([*first, *run(made, late[:1])]) == ["a", "b"]
    assert made.plan(late[1]).verdict.code is Code.UNSCHEDULABLE
    assert made.due() == []


def test_late_member_gets_gpus_of_the_model_of_the_others_where_that_is_asked():
    made, pods = fleet(a=(BOX,), b=(OTHER,)), group(8, same_model=True)
    taken(made, "x", "b", 1, OTHER)
    show(made, pods)
    assert run(made, pods) == ["a"]
    made.planner.cluster.forget_pod(PodUid("x"), made.now)
    late = member("late", 8, index=1, least=1, same_model=True)
    show(made, [late])
    assert made.plan(late).verdict.code is Code.UNSCHEDULABLE
    assert made.due() == []


def test_ranks_stay_in_order_though_the_scheduler_saw_other_nodes_when_it_asked_about_a_member_before():
    """A node that has just come has a taint for a moment: who was asked about then could not use it."""
    names = {"a": ("leaf-1", "s1"), "b": ("leaf-2", "s1"), "c": ("leaf-2", "s1"), "d": ("leaf-3", "s2")}
    made, pods = fleet(**{name: (BOX, *path) for name, path in names.items()}), group(8, 8, 8, required_level="tier-1")
    show(made, pods[1:2])
    assert made.plan(pods[1], eligible=only(0, 1, 2, known=4)).verdict.code is not Code.OK
    show(made, pods)
    placed = []
    for each in pods:
        answer = made.plan(each)
        made.reserve(each, answer)
        placed.append("abcd"[answer.node or 0])
    assert placed == ["a", "b", "c"]
