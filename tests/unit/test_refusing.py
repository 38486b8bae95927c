"""What a refusal owes to models, partitions and searches that end early; what is told of GPUs without a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from pyscheduler.core.cluster import Cluster
from pyscheduler.core.fabric.place import Place
from pyscheduler.core.job import NO_LIMITS, Job, Limits, Refusal, Selection
from pyscheduler.core.machine import large_clique
from pyscheduler.core.machine.device_class import DeviceClass
from pyscheduler.core.machine.device_table import DeviceTable
from pyscheduler.core.machine.links import Link
from pyscheduler.core.model import Machine, NodeFacts, PodUid
from pyscheduler.core.selector import select

NEAR = Limits(max_link=Link.parse("PIX"))


def mask(gpus: Iterable[int]) -> int:
    return sum(1 << gpu for gpu in gpus)


def kind(models: Sequence[str | None], links: dict[tuple[int, int], str] | None = None, other: str = "NV12") -> DeviceClass:
    pairs = dict.fromkeys(combinations(range(len(models)), 2), other)
    return DeviceClass.of(models, [0] * len(models), {**pairs, **(links or {})})


def cluster_of(*kinds: DeviceClass, busy: Sequence[int] = ()) -> Cluster:
    """Return nodes a, b, ...; on all of them the GPUs of these indices are busy."""
    cluster = Cluster(epoch=1, scheduler_name="gpu-topology")
    for name, each in zip("abcdef", kinds, strict=False):
        ids = tuple(f"GPU{gpu}" for gpu in range(each.gpus))
        machine = Machine(ids, tuple(f"{name}-{gpu}" for gpu in ids), (1 << each.gpus) - 1, DeviceTable.build(each))
        used = {PodUid(f"of-{name}"): tuple(f"{name}-GPU{gpu}" for gpu in busy)}
        cluster.observe_node(NodeFacts(name, Place(()), "nvidia.com/gpu", each.gpus, machine, used), 0.0)
    return cluster


def refused(cluster: Cluster, job: Job) -> Refusal:
    found = select(cluster, job)
    assert isinstance(found, Refusal), found
    return found


def placed(cluster: Cluster, job: Job) -> Selection:
    found = select(cluster, job)
    assert isinstance(found, Selection), found
    return found


class TestModels:
    """GPUs of several models, and of none that is known."""

    def test_of_one_model_only_what_one_model_has_would_fit(self):
        found = refused(cluster_of(kind(["Card A", "Card A", "Card B"])), Job(1, 3, same_model=True))
        assert (found.fits, found.binds) == (2, "same-model")
        assert "of which 2 satisfy the limits" in found.reason

    def test_one_gpu_is_of_one_model_even_if_only_their_number_is_known(self):
        cluster = cluster_of(kind(["Card A", "Card B"]), busy=[0, 1])
        cluster.observe_node(NodeFacts("z", Place(()), "nvidia.com/gpu", 4, None, {}), 0.0)
        assert refused(cluster, Job(1, 2, same_model=True)).fits == 1

    def test_a_gpu_without_a_model_counts_as_what_all_others_are(self):
        holed = kind(["Card A", "Card A", None, "Card A"])
        found = placed(cluster_of(holed, kind(["Card A"] * 4, other="SYS")), Job(4, 1))
        assert ({pod.node for pod in found.pods}, found.level) == ({0}, "node")
        assert isinstance(select(cluster_of(holed), Job(1, 4, same_model=True)), Selection)

    @pytest.mark.parametrize(
        ("models", "known"),
        [
            (("Card A", None, "Card A"), ("Card A",) * 3),
            (("Card A", None, "Card B"), ("Card A", None, "Card B")),
            ((None, None), (None, None)),
            (("Card A", "Card A"), ("Card A", "Card A")),
        ],
    )
    def test_only_one_known_model_can_stand_for_an_unknown_one(self, models, known):
        assert kind(models).known_models == known
        assert kind(models).mixed == (len(set(known)) > 1)

    @pytest.mark.parametrize("models", [(None, None), ("Card A", None)])
    def test_same_model_warns_of_an_unknown_model(self, models):
        found = placed(cluster_of(kind(models)), Job(1, 2, same_model=True)).warnings
        assert [(each.code, each.node) for each in found] == [("model-unknown", "a")]

    def test_one_gpu_is_alike_to_itself(self):
        assert placed(cluster_of(kind([None, None])), Job(1, 1, same_model=True)).warnings == ()

    def test_same_model_warns_where_only_the_number_of_gpus_is_known(self):
        cluster = cluster_of(kind(["Card A"] * 2), busy=[0, 1])
        cluster.observe_node(NodeFacts("z", Place(()), "nvidia.com/gpu", 4, None, {}), 0.0)
        codes = [each.code for each in placed(cluster, Job(1, 4, same_model=True)).warnings]
        assert codes == ["count-only", "model-unknown"]

    @pytest.mark.parametrize(("models", "same"), [(("Card A", "Card A"), True), ((None, None), False)])
    def test_nothing_is_told_of_known_models_or_without_the_wish(self, models, same):
        assert placed(cluster_of(kind(models)), Job(1, 2, same_model=same)).warnings == ()

    def test_gpus_of_that_model_would_have_to_be_freed(self):
        both = kind(["Card A"] * 3 + ["Card B"] * 3)
        assert refused(cluster_of(both, busy=[0, 1, 3]), Job(1, 3, same_model=True, limits=NEAR)).binds == "same-model"
        found = refused(cluster_of(both, busy=[0, 1, 3, 4]), Job(1, 3, same_model=True))
        assert (found.fits, found.binds, found.change) == (1, "gpus", "2 GPUs more would have to be freed on a")

    def test_the_node_where_fewest_of_that_model_are_lacking_is_named(self):
        both, one = kind(["Card A", "Card A", "Card B", "Card B"]), kind(["Card B"] * 4)
        cluster = cluster_of(both, one, busy=[2, 3])
        found = refused(cluster, Job(1, 3, same_model=True))
        assert found.change == "1 GPU more would have to be freed on b"

    def test_without_any_known_model_it_is_a_matter_of_numbers(self):
        cluster = Cluster(epoch=1, scheduler_name="gpu-topology")
        cluster.observe_node(NodeFacts("z", Place(()), "nvidia.com/gpu", 4, None, {}), 0.0)
        assert [each.code for each in placed(cluster, Job(2, 2, same_model=True)).warnings] == ["count-only", "model-unknown"]
        assert refused(cluster, Job(3, 2, same_model=True)).fits == 2


class TestPartitions:
    """Machines that give out some sets only."""

    PARTED = replace(kind([None] * 4), partitions=(0b0001, 0b1110))

    def test_sizes_that_are_offered_are_named(self):
        found = refused(cluster_of(self.PARTED), Job(1, 2))
        assert (found.fits, found.binds) == (1, "partitions")
        assert found.reason.endswith("a: this machine gives out sets of 1 and 3")
        assert found.change == "it would fit with 1 or 3 GPUs: ask for a size that is given out"

    def test_only_sizes_that_are_free_are_advised(self):
        found = refused(cluster_of(self.PARTED, busy=[0]), Job(1, 2))
        assert (found.fits, found.binds, "sets of 1 and 3" in found.reason) == (0, "partitions", True)
        assert found.change == "it would fit with 3 GPUs: ask for a size that is given out"

    def test_a_set_of_the_size_that_is_busy_asks_for_other_gpus(self):
        pairs = replace(kind([None] * 4), partitions=(0b0011, 0b1100))
        found = refused(cluster_of(pairs, busy=[0, 2]), Job(1, 2))
        assert (found.fits, found.binds, found.change) == (0, "partitions", "other GPUs would have to be free on a")

    def test_a_gang(self):
        found = refused(cluster_of(self.PARTED, self.PARTED), Job(2, 2))
        assert (found.fits, found.binds) == (0, "partitions")
        assert found.change == "it would fit with 1 or 3 GPUs per pod: ask for a size that is given out"

    def test_they_do_not_bind_where_gpus_are_too_few_anyway(self):
        assert refused(cluster_of(self.PARTED, busy=[0, 1, 2]), Job(1, 2)).binds == "gpus"
        assert refused(cluster_of(self.PARTED), Job(3, 2)).binds == "gpus"

    def test_a_limit_that_binds_alone_is_named_first(self):
        pairs = replace(kind([None] * 4, other="SYS"), partitions=(0b0011, 0b1100))
        assert refused(cluster_of(pairs), Job(1, 2, limits=NEAR)).binds == "max-link"


class TestLargeMachines:
    """A search that ended early proves nothing, and says so."""

    RING = kind([None] * 20, {(a, b): "SYS" for a, b in combinations(range(20), 2) if (b - a) % 19 > 3}, "PIX")
    NOTE = "(not proven: machines of more than 16 GPUs are searched, not judged)"

    def test_a_search_that_ends_is_proof(self):
        found = refused(cluster_of(self.RING), Job(1, 9, limits=NEAR))
        assert found.binds == "max-link"
        assert self.NOTE not in found.reason

    def test_a_search_that_was_cut_short_says_so(self, monkeypatch):
        links = {(a, b): "PIX" if pow(b - a, 18, 37) == 1 else "SYS" for a, b in combinations(range(37), 2)}
        paley, job = cluster_of(kind([None] * 37, links)), Job(1, 5, limits=NEAR)
        assert self.NOTE not in refused(paley, job).reason
        monkeypatch.setattr(large_clique, "_STEPS_MAX", 3)
        assert refused(paley, job).reason.endswith(self.NOTE)

    def test_disjoint_sets_that_are_taken_greedily_are_no_proof(self):
        parts = (mask([0, 1, 2]), mask([2, 3, 4]), mask([4, 5, 6]))
        found = refused(cluster_of(replace(kind([None] * 20), partitions=parts)), Job(3, 3))
        assert (found.fits, found.reason.endswith(self.NOTE)) == (2, True)

    def test_partitions_without_one_of_the_size_are_proof(self):
        found = refused(cluster_of(replace(kind([None] * 20), partitions=(0b11,))), Job(1, 3))
        assert (found.binds, self.NOTE in found.reason) == ("partitions", False)

    def test_without_limits_it_is_a_matter_of_numbers(self):
        found = refused(cluster_of(kind([None] * 20)), Job(1, 21, limits=NO_LIMITS))
        assert (found.fits, self.NOTE in found.reason) == (20, False)


def test_a_level_that_nobody_knows_is_refused():
    found = refused(cluster_of(kind(["Card A"] * 4)), Job(2, 1, required_level="hall"))
    assert (found.fits, found.binds) == (0, "level")
    assert found.change.startswith("no node is known to be in a domain of level hall")


def test_of_a_level_that_nobody_knows_nothing_that_is_freed_helps():
    found = refused(cluster_of(kind(["Card A"] * 4), busy=[0]), Job(2, 2, required_level="hall"))
    assert (found.fits, found.binds) == (0, "gpus")
    assert found.change.startswith("one hall holds 0 such pods even if it were empty")
