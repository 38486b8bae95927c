"""The example of a training loop: shards follow the speeds, and unequal shards learn what equal ones do."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.examples.train import Alone, Pair, read_speeds, shards, train
from pyscheduler.adapters.gang_config_map import config_map
from pyscheduler.core.gangs.membership import GangKey, OwnerRef
from pyscheduler.core.gangs.table import GangTable, Row

SPEEDS = st.lists(st.floats(0.1, 1.5), min_size=1, max_size=64)


@given(st.integers(0, 5000), SPEEDS)
def test_shards_are_the_batch_and_each_is_its_part_within_one_sample(batch: int, speeds: list[float]) -> None:
    sizes = shards(batch, speeds)
    assert len(sizes) == len(speeds)
    assert sum(sizes) == batch
    for size, speed in zip(sizes, speeds, strict=True):
        assert size >= 0
        assert abs(size - batch * speed / sum(speeds)) <= 1 + 1e-9


def test_slow_rank_gets_fewer_samples() -> None:
    assert shards(380, [1.0, 0.8, 1.0, 1.0]) == [100, 80, 100, 100]


def table(folder: Path, speeds: Mapping[int, float | None]) -> Path:
    """Write the table of a group, as it is mounted."""
    rows = tuple(
        Row(rank, f"train-{rank}", f"train-{rank}.train", "n1", ("GPU-1",), None, speed) for rank, speed in speeds.items()
    )
    owner = OwnerRef("batch/v1", "Job", "train", "u")
    written = config_map(GangTable(GangKey("default", "train", "pyscheduler"), owner, None, rows))
    assert written is not None
    folder.mkdir(exist_ok=True)
    for name, text in written["data"].items():
        (folder / name).write_text(text)
    return folder


def test_speeds_are_those_of_the_table_that_is_mounted(tmp_path: Path) -> None:
    table(tmp_path, {0: 0.9, 1: 1.05})
    assert read_speeds(tmp_path, 2) == [0.9, 1.05]


def test_what_is_not_known_counts_as_one(tmp_path: Path) -> None:
    assert read_speeds(tmp_path, 3) == [1, 1, 1], "no table"
    table(tmp_path, {0: None, 2: 0.8})
    assert read_speeds(tmp_path, 4) == [1, 1, 0.8, 1], "a rank without speed, one that is missing, one beyond the table"


@pytest.mark.parametrize("text", ["", "[", '[{"rank": 0, "relative_speed": null}, {"rank": 1}]'])
def test_table_that_is_not_written_yet_and_speed_that_is_not_known_count_as_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "ranks.json").write_text(text)
    assert read_speeds(tmp_path, 2) == [1, 1]


class Together:
    """A rank among others in threads."""

    def __init__(self, rank: int, barrier: threading.Barrier, box: dict[str, object], pods: int) -> None:
        self.rank, self.size, self.pods = rank, barrier.parties, pods
        self._barrier, self._box = barrier, box

    def agree(self, speeds: list[float]) -> list[float]:
        if self.rank == 0:
            self._box["speeds"] = speeds
        self._barrier.wait(30)
        agreed = self._box["speeds"]
        self._barrier.wait(30)
        assert isinstance(agreed, list)
        return agreed

    def add(self, parts: Pair) -> Pair:
        self._box[f"parts of {self.rank}"] = parts
        self._barrier.wait(30)
        total = [sum(column) for column in zip(*(self._box[f"parts of {r}"] for r in range(self.size)), strict=True)]
        self._barrier.wait(30)
        return total[0], total[1]


def test_ranks_with_unequal_shards_learn_what_one_does_alone(tmp_path: Path) -> None:
    """Two pods of two processes. The second has not seen the new table yet: rank 0 decides, or samples would be lost."""
    tables = [table(tmp_path / "new", {0: 1.0, 1: 0.6}), table(tmp_path / "old", {0: 1.0, 1: 1.0})]
    barrier, box = threading.Barrier(4), dict[str, object]()
    with ThreadPoolExecutor(4) as pool:
        learned = [
            pool.submit(train, Together(rank, barrier, box, 2), tables[rank // 2], epochs=3, batch=64) for rank in range(4)
        ]
    alone = train(Alone(), tmp_path, epochs=3, batch=64)
    assert all(each.result() == pytest.approx(alone) for each in learned)
