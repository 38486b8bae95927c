"""A training loop whose shards follow the relative speed of each rank, so that no rank waits for the slowest one.

Beside torch (``torchrun train.py``) it is one of many; without torch it runs alone: ``python train.py``. The model is a line
through made-up points: what matters is how a batch is divided and how gradients are put together again.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import random
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

# Where job.yaml mounts the ConfigMap of the group, <group>-ranks.
RANKS = Path("/etc/ranks")

Sample = tuple[float, float]
Pair = tuple[float, float]


def read_speeds(folder: Path, pods: int) -> list[float]:
    """Return the relative speed of each pod by rank: 1 is as fast as others of its model, and also what is not known."""
    try:
        table = json.loads((folder / "ranks.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        table = []  # not there, or not written yet: nothing is known of any of them
    known = {row["rank"]: row["relative_speed"] for row in table if row.get("relative_speed") is not None}
    return [known.get(rank, 1.0) for rank in range(pods)]


def shards(batch: int, speeds: Sequence[float]) -> list[int]:
    """Return how many samples each rank takes: together the batch, each within one sample of its part by speed."""
    total = sum(speeds)
    # The boundaries are rounded, not the shards: so their sum is right.
    bounds = [round(batch * upto / total) for upto in accumulate(speeds)]
    return [end - start for start, end in zip([0, *bounds], bounds, strict=False)]


def gradient(samples: Sequence[Sample], line: Pair, batch: int) -> Pair:
    """Return this shard's part of the gradient of the mean squared error.

    It is divided by the whole batch, not by the shard: a mean of the means of unequal shards is not the mean.
    """
    slope, offset = line
    errors = [(x, slope * x + offset - y) for x, y in samples]
    return 2 * sum(x * e for x, e in errors) / batch, 2 * sum(e for _, e in errors) / batch


class Group(Protocol):
    """The ranks of the job. `pods` of them have the same number of processes each."""

    rank: int
    size: int
    pods: int

    def agree(self, speeds: list[float]) -> list[float]:
        """Return what rank 0 has read: the mounted table reaches nodes at different times, and shards must not overlap."""

    def add(self, parts: Pair) -> Pair:
        """Return the sum over all ranks."""


class Alone:
    """One process."""

    rank, size, pods = 0, 1, 1

    def agree(self, speeds: list[float]) -> list[float]:
        """Return them."""
        return speeds

    def add(self, parts: Pair) -> Pair:
        """Return them."""
        return parts


class Torch:
    """The processes that torchrun started. DistributedDataParallel takes the mean over ranks: scale the loss for it instead."""

    def __init__(self) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._dist: Any = importlib.import_module("torch.distributed")
        self._dist.init_process_group("gloo")
        self.rank, self.size = self._dist.get_rank(), self._dist.get_world_size()
        self.pods = self.size // int(os.environ["LOCAL_WORLD_SIZE"])

    def agree(self, speeds: list[float]) -> list[float]:
        """Return those of rank 0."""
        box = [speeds]
        self._dist.broadcast_object_list(box, src=0)
        return box[0]

    def add(self, parts: Pair) -> Pair:
        """Return the sum over all ranks."""
        tensor = self._torch.tensor(parts)
        self._dist.all_reduce(tensor)
        return tensor[0].item(), tensor[1].item()


def train(group: Group, folder: Path = RANKS, epochs: int = 20, batch: int = 256, step: float = 0.5) -> Pair:
    """Return the line that was learned."""
    made = random.Random(1)  # noqa: S311 - the same points on all ranks
    points = [(x, 3 * x + 2 + made.gauss(0, 0.01)) for x in (made.random() for _ in range(16 * batch))]
    line = (0.0, 0.0)
    for _ in range(epochs):
        # Anew in each epoch: the table follows pods that are replaced.
        by_pod = group.agree(read_speeds(folder, group.pods))
        sizes = shards(batch, [speed for speed in by_pod for _ in range(group.size // group.pods)])
        first = sum(sizes[: group.rank])
        for start in range(0, len(points), batch):
            mine = points[start + first : start + first + sizes[group.rank]]
            slope, offset = group.add(gradient(mine, line, batch))
            line = (line[0] - step * slope, line[1] - step * offset)
    return line


if __name__ == "__main__":
    beside_others = "LOCAL_WORLD_SIZE" in os.environ and importlib.util.find_spec("torch") is not None
    print("y = {:.2f} x + {:.2f}".format(*train(Torch() if beside_others else Alone())))
