"""Tables of groups: right, given out in time, never in place of a better one."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from deploy.local import machines
from pyscheduler.core.gangs.membership import OwnerRef
from pyscheduler.core.gangs.table import GangTable
from pyscheduler.core.model import PodFacts, PodRequest, PodUid
from pyscheduler.core.replies import HeldByShim, PlanMember
from pyscheduler.readers.gangs import Controller, membership_of
from pyscheduler.readers.objects import ObjectReader
from tests.builders import attempt, bound, member, node, planner, shown, uuids
from tests.unit.test_gangs import BOX, SPINES, Shim, members, shim, show

JOB = OwnerRef("batch/v1", "Job", "train", "uid-of-job")


def take(made: Shim) -> list[GangTable]:
    return made.planner.gangs.tables.take()


def bind(made: Shim, pod: PodRequest, name: str, **fields: object) -> None:
    """Let the watch show what the Binding of a reserved member says."""
    held = made.planner.cluster.ledger.get(pod.uid)
    assert held is not None
    rank = dict(held.annotations).get("pyscheduler.io/rank")
    said: dict[str, object] = {"gpus": {"main": held.gpus}, "rank": int(rank) if rank else None, **fields}
    made.planner.cluster.observe_pod(shown(pod, name, **said), made.now)


def started(made: Shim, pods: list[PodRequest]) -> list[str]:
    """Place all members and let the watch show them bound; return their nodes."""
    show(made, pods)
    names = [made.place(each) for each in pods]
    for each, name in zip(pods, names, strict=True):
        bind(made, each, name)
    return names


def restarted(made: Shim, pods: list[PodFacts]) -> Shim:
    """Return a service that knows nothing but what the API shows: the same nodes, and these pods."""
    anew = shim(*made.planner.cluster.table.names)
    for each in pods:
        anew.planner.cluster.observe_pod(each, 0.0)
    return anew


def seen(pod: PodRequest, name: str, rank: int | None, gpus: tuple[str, ...]) -> PodFacts:
    return shown(pod, name, rank=rank, gpus={"main": gpus})


# -- when -------------------------------------------------------------------------------------------------------------


def test_table_is_given_out_when_the_last_needed_member_is_reserved_and_once():
    made, pods = shim("a", "b"), members(2)
    show(made, pods)
    first = made.place(pods[0])
    assert take(made) == []
    second = made.place(pods[1])
    (table,) = take(made)
    assert [(row.rank, row.pod, row.node) for row in table.rows] == [(0, "job-0", first), (1, "job-1", second)]
    assert take(made) == []


def test_bindings_and_status_change_nothing():
    made, pods = shim("a", "b"), members(2)
    names = started(made, pods)
    assert len(take(made)) == 1
    for each, name in zip(pods, names, strict=True):
        bind(made, each, name, bound_at=5.0)
    assert take(made) == []


def test_member_that_the_watch_has_not_shown_yet_keeps_the_table_back_until_it_does():
    made, pods = shim("a", "b"), members(2)
    show(made, pods[:1])
    made.plan(pods[1])
    for each in pods:
        made.place(each)
    assert take(made) == []
    made.planner.cluster.observe_pod(shown(pods[1], host="job-1.svc"), 0.0)
    (table,) = take(made)
    assert [row.host for row in table.rows] == ["job-0", "job-1.svc"]


def test_elastic_group_has_a_table_of_those_that_have_come_and_another_with_each_that_joins():
    made, pods = shim("a", "b", "c"), members(3, least=2)
    show(made, pods)
    sizes = []
    for each in pods:
        made.place(each)
        sizes += [len(table.rows) for table in take(made)]
    assert sizes == [2, 3]


def test_member_that_goes_changes_nothing_and_the_one_in_its_place_does():
    made, pods = shim("a", "b", "c"), members(2)
    names = started(made, pods)
    take(made)
    bind(made, pods[1], names[1], terminating=True)
    assert take(made) == []
    made.planner.cluster.forget_pod(pods[1].uid, 0.0)
    assert take(made) == []
    new = replace(pods[1], uid=PodUid("new"), name="job-1-new")
    show(made, [new])
    name = made.place(new)
    (table,) = take(made)
    assert [(row.rank, row.pod, row.node) for row in table.rows] == [(0, "job-0", names[0]), (1, "job-1-new", name)]


def test_plan_that_is_made_anew_brings_another_table():
    made, pods = shim("a", "b", "c"), members(2)
    show(made, pods)
    names = [made.place(each) for each in pods]
    take(made)
    plan = made.planner.gangs.plans.all()[0].id
    made.planner.unreserve(attempt(made.number), pods[1].uid, bound_unknown=False, now=0.0, ended_plan=plan)
    made.now = 2.0
    made.plan(pods[0], refused=(names[0],))
    again = [made.place(each) for each in pods]
    (table,) = take(made)
    assert ([row.node for row in table.rows], names[0] in again) == (again, False)


def test_launcher_is_needed_and_has_no_rank():
    made, workers = shim("a", "b"), members(2, least=3)
    launcher = member("launcher", 0, least=3, role=(0, "launcher"))
    show(made, [*workers, launcher])
    for each in workers:
        made.place(each)
    (table,) = take(made)
    assert [row.pod for row in table.rows] == ["job-0", "job-1"]


def test_group_that_waits_has_no_table():
    made, pods = shim("a"), members(2)
    show(made, pods)
    made.plan(pods[0])
    assert take(made) == []


def test_groups_of_pods_of_other_schedulers_have_no_table():
    made = shim("a")
    made.planner.cluster.observe_pod(bound("x", "a", 8, uuids(BOX, "a", *range(8)), gang=True, rank=0, scheduler="other"), 0.0)
    assert take(made) == []


def test_ended_groups_are_forgotten():
    made, pods = shim("a", "b"), members(2)
    started(made, pods)
    take(made)
    gang = made.planner.gangs.plans.all()[0].gang
    assert made.planner.gangs.tables.is_live(gang)
    for each in pods:
        made.planner.cluster.forget_pod(each.uid, 0.0)
    assert not made.planner.gangs.tables.is_live(gang)
    made.planner.expire(0.0)
    made.planner.gangs.tables.renew()
    assert take(made) == []


# -- what -------------------------------------------------------------------------------------------------------------


def test_gpus_stand_in_ring_order_with_their_weakest_link():
    made = Shim(planner(node("v", "dgx-1v")))
    show(made, [pod := member("job-0", 8, index=0, least=1)])
    made.place(pod)
    (table,) = take(made)
    row = table.rows[0]
    links = machines.document("dgx-1v", "v")["links"]
    lanes = {
        frozenset((link["a"], link["b"])): int(link["type"].removeprefix("NV")) for link in links if link["type"][:2] == "NV"
    }

    def weakest(ring: tuple[int, ...]) -> int:
        around = zip(ring, (*ring[1:], ring[0]), strict=True)
        return min(lanes.get(frozenset((f"GPU{a}", f"GPU{b}")), 0) for a, b in around)

    every = uuids("dgx-1v", "v", *range(8))
    best = max(weakest((0, *ring)) for ring in permutations(range(1, 8)))
    ring = tuple(every.index(gpu) for gpu in row.gpus)
    assert (sorted(ring), weakest(ring), row.bottleneck) == ([*range(8)], best, "SYS")
    # In the order of their indices they are no ring at all.
    assert weakest(tuple(range(8))) == 0


def test_nodes_whose_links_are_not_known_give_gpus_without_a_link():
    made = Shim(planner(node("n", None)))
    show(made, [pod := member("job-0", 2, index=0, least=1)])
    made.place(pod)
    (table,) = take(made)
    assert (table.rows[0].gpus, table.rows[0].bottleneck) == (("index:0", "index:1"), None)


@pytest.mark.parametrize(("count", "level"), [(1, "node"), (2, "tier-0"), (3, "tier-1"), (5, None)])
def test_level_is_the_nearest_that_holds_all(count: int, level: str | None):
    made = shim(*SPINES, path=dict(SPINES))
    pods = members(count)
    show(made, pods)
    for each in pods:
        made.place(each)
    (table,) = take(made)
    assert table.level == level


def test_owner_is_the_controller_that_all_have_in_common():
    made, pods = shim("a", "b"), members(2, owner=JOB)
    started(made, pods)
    assert [table.owner for table in take(made)] == [JOB]


def test_owner_is_the_first_pod_where_controllers_differ():
    made = shim("a", "b")
    pods = [member(f"job-{i}", 8, index=i, least=2, owner=replace(JOB, uid=f"job-{i}")) for i in range(2)]
    started(made, pods)
    assert [table.owner for table in take(made)] == [OwnerRef("v1", "Pod", "job-0", "job-0")]


def test_owner_is_the_first_pod_where_there_is_no_controller():
    made, pods = shim("a", "b"), members(2)
    started(made, pods)
    assert [table.owner for table in take(made)] == [OwnerRef("v1", "Pod", "job-0", "job-0")]


# -- after a restart --------------------------------------------------------------------------------------------------


def handles(name: str) -> tuple[str, ...]:
    return uuids(BOX, name, *range(8))


def test_table_is_made_of_what_bindings_say():
    made, pods = shim("a", "b"), members(2)
    names = started(made, pods)
    (before,) = take(made)
    anew = restarted(
        made, [seen(pod, name, rank, handles(name)) for rank, (pod, name) in enumerate(zip(pods, names, strict=True))]
    )
    assert take(anew) == [before]


def test_who_takes_over_gives_out_again_what_it_gave_out_before():
    made, pods = shim("a", "b"), members(2)
    started(made, pods)
    before = take(made)
    made.planner.gangs.tables.renew()
    assert (take(made), take(made)) == (before, [])


def test_no_table_while_a_member_may_be_bound_that_is_not_known_to_be():
    made, pods = shim("a", "b"), members(2)
    anew = restarted(made, [seen(pods[0], "a", 0, handles("a")), shown(pods[1])])
    assert take(anew) == []
    anew.planner.cluster.observe_pod(seen(pods[1], "b", 1, handles("b")), 0.0)
    assert [len(table.rows) for table in take(anew)] == [2]


def tell(made: Shim, pods: list[PodRequest], nodes: str) -> None:
    """Let a scheduler tell which members it has reserved, and let go, on which nodes."""
    plan = PlanMember("default/job/1.1", "default/job", len(pods))
    said = enumerate(zip(pods, nodes, strict=True), 1)
    held = [HeldByShim(pod, number, name, handles(name), False, False, plan, True) for number, (pod, name) in said]
    made.planner.resync(attempt(9), held, 0.0)


def test_members_that_a_scheduler_tells_of_have_their_ranks_when_they_are_bound():
    made, pods = shim("a", "b"), members(2)
    anew = restarted(made, [shown(pod) for pod in pods])
    tell(anew, pods, "ab")
    assert take(anew) == []
    for rank, (pod, name) in enumerate(zip(pods, "ab", strict=True)):
        anew.planner.cluster.observe_pod(seen(pod, name, rank, handles(name)), 0.0)
    (table,) = take(anew)
    assert [(row.rank, row.node) for row in table.rows] == [(0, "a"), (1, "b")]


def test_rank_that_a_user_wrote_does_not_count():
    made, pods = shim("a", "b"), members(2)
    anew = restarted(made, [shown(pod, rank=7 + number) for number, pod in enumerate(pods)])
    tell(anew, pods, "ab")
    assert take(anew) == []


def test_of_two_with_one_rank_the_one_that_is_being_deleted_does_not_count():
    made, pods = shim("a", "b", "c"), members(2)
    new = replace(pods[1], uid=PodUid("new"), name="job-1-new")
    old = replace(seen(pods[1], "b", 1, handles("b")), terminating=True)
    anew = restarted(made, [seen(pods[0], "a", 0, handles("a")), old, seen(new, "c", 1, handles("c"))])
    (table,) = take(anew)
    assert [(row.pod, row.node) for row in table.rows] == [("job-0", "a"), ("job-1-new", "c")]


@pytest.mark.parametrize("rank", [None, 0])
def test_no_table_of_members_without_a_rank_of_their_own(rank: int | None):
    made, pods = shim("a", "b"), members(2)
    anew = restarted(made, [seen(pods[0], "a", 0, handles("a")), seen(pods[1], "b", rank, handles("b"))])
    assert take(anew) == []


def test_no_table_of_members_whose_annotation_does_not_count():
    made, pods = shim("a", "b"), members(2)
    anew = restarted(made, [seen(pods[0], "a", 0, handles("a")), seen(pods[1], "a", 1, handles("a"))])
    assert take(anew) == []


# -- ranks of members that take the place of others -------------------------------------------------------------------


def test_member_has_the_rank_of_the_one_that_is_still_being_deleted():
    made, pods = shim("a", "b", "c", "d"), members(3)
    names = started(made, pods)
    bind(made, pods[1], names[1], terminating=True)
    new = replace(pods[1], uid=PodUid("new"), name="job-1-new")
    show(made, [new])
    answer = made.plan(new)
    assert made.reserve(new, answer)[1]["pyscheduler.io/rank"] == "1"


def test_member_without_an_index_has_the_rank_that_is_free():
    made = shim("a", "b", "c")
    pods = [member(name, 8, least=3) for name in ("w-a", "w-b", "w-c")]
    started(made, pods)
    made.planner.cluster.forget_pod(pods[0].uid, 0.0)
    new = member("w-d", 8, least=3)
    show(made, [new])
    answer = made.plan(new)
    assert made.reserve(new, answer)[1]["pyscheduler.io/rank"] == "0"


# -- what is read of pods ---------------------------------------------------------------------------------------------


READER = ObjectReader(("nvidia.com/gpu",), scheduler="gpu-topology")


def raw(annotations: dict[str, str], spec: dict[str, object] | None = None, group: str | None = "train") -> PodFacts:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-of-job", "controller": True}
    labels = {"pyscheduler.io/group": group, "pyscheduler.io/min-members": "2"} if group else {}
    meta = {"uid": "u", "namespace": "ns", "name": "train-0-x7k", "annotations": annotations, "labels": labels}
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    found = READER.pod({"metadata": {**meta, "ownerReferences": [owner]}, "spec": {"containers": [container], **(spec or {})}})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "rank"), [("0", 0), ("511", 511), ("", None), ("-1", None), ("1.0", None), ("\u0663", None), ("9" * 5000, None)]
)
def test_rank_is_read(text: str, rank: int | None):
    assert raw({"pyscheduler.io/rank": text}).rank == rank


def test_pod_of_no_group_has_neither_rank_nor_host():
    found = raw({"pyscheduler.io/rank": "3"}, group=None)
    assert (found.rank, found.host) == (None, "")


@pytest.mark.parametrize(
    ("spec", "host"),
    [
        ({}, "train-0-x7k"),
        ({"hostname": "train-0"}, "train-0"),
        ({"hostname": "train-0", "subdomain": "train"}, "train-0.train"),
        ({"subdomain": "train"}, "train-0-x7k.train"),
    ],
)
def test_host_is_the_name_by_which_other_pods_reach_it(spec: dict[str, object], host: str):
    assert raw({}, spec).host == host


def test_controller_owns_what_is_made_for_the_group():
    membership = raw({}).membership
    assert membership is not None
    assert membership.owner == JOB


def test_without_a_controller_or_its_uid_nothing_owns():
    for controller in (None, Controller("batch/v1", "Job", "train")):
        membership = membership_of("ns", {"pyscheduler.io/group": "g"}, {}, controller)
        assert membership is not None
        assert membership.owner is None
