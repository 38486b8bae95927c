"""Random clusters and jobs, by seed. Every fifth cluster has NVLink domains that span nodes."""

from __future__ import annotations

import random
from itertools import combinations

from tests.oracle.boards import Board
from tests.oracle.fabric import Fabric, Host
from tests.oracle.placement import Wanted
from tests.oracle.trees import Forest, switched

__all__ = ["any_cluster", "any_forest", "has_nvlink_domains"]

LEVELS = ("leaf", "spine", "core", "hall")
MODELS: tuple[tuple[str | None, ...], ...] = ((None,), (None,), ("Card A",), ("Card A", "Card B"), ("Card A", "Card B", None))


def has_nvlink_domains(seed: int) -> bool:
    return seed % 5 == 0


def any_cluster(seed: int) -> tuple[Fabric, Wanted]:
    """Return up to 5 hosts of up to 4 GPUs, linked in any way, and a gang."""
    draw = random.Random(seed)
    models = draw.choice(MODELS)
    mixed = draw.random() < 0.3
    pool = [_board(draw, models if mixed else (draw.choice(models),)) for _ in range(draw.randint(1, 3))]
    levels = LEVELS[: draw.randint(0, 3)]
    hosts = []
    for number in range(draw.randint(1, 5)):
        board = draw.choice(pool)
        free = tuple(gpu for gpu in board.gpus if draw.random() < 0.8)
        hosts.append(Host(f"h{number}", _path(draw, levels, 2), board, free, _nvlink(draw, seed)))
    wanted = _gang(draw, (2, 2, 3, 4, 5), (1, 1, 2, 2, 3), levels)
    return Fabric(hosts, levels), wanted


def any_forest(seed: int) -> tuple[Forest, Wanted]:
    """Return 2 to 12 hosts of up to 8 GPUs behind switches in 1 to 4 levels, and a gang."""
    draw = random.Random(seed)
    models = draw.choice(MODELS)
    pool = [
        switched(draw.choice([2, 4, 8]), draw.choice([12, 18]), draw.choice(models)) for _ in range(draw.choice([1, 1, 2, 3]))
    ]
    levels = LEVELS[: draw.randint(1, 4)]
    width = draw.choice([2, 2, 3])
    hosts = []
    for number in range(draw.randint(2, 12)):
        board = draw.choice(pool)
        size = len(board.numa)
        free = board.gpus if draw.random() < 0.4 else tuple(sorted(draw.sample(range(size), draw.randint(0, size))))
        hosts.append(Host(f"h{number}", _path(draw, levels, width), board, free, _nvlink(draw, seed)))
    wanted = _gang(draw, (2, 2, 3, 4, 5, 6, 8, 12), (1, 1, 2, 2, 3, 4, 8), levels)
    return Forest(Fabric(hosts, levels)), wanted


def _board(draw: random.Random, models: tuple[str | None, ...]) -> Board:
    gpus = draw.choice([1, 2, 2, 3, 4, 4])
    links = tuple(draw.choice(["NV1", "NV2", "NV4", "PIX", "PHB", "SYS"]) for _ in combinations(range(gpus), 2))
    return Board(links, tuple(draw.randint(0, 1) for _ in range(gpus)), tuple(draw.choice(models) for _ in range(gpus)))


def _path(draw: random.Random, levels: tuple[str, ...], width: int) -> tuple[tuple[str, str], ...]:
    """Return a path nearest first; now and then a level of it is not known."""
    path: list[tuple[str, str]] = []
    name = ""
    for level in reversed(levels):
        name += str(draw.randrange(width))
        path.insert(0, (level, name))
    if path and draw.random() < 0.2:
        path.pop(draw.randrange(len(path)))
    return tuple(path)


def _nvlink(draw: random.Random, seed: int) -> str | None:
    return draw.choice([None, "rack-0", "rack-1", None]) if has_nvlink_domains(seed) else None


def _gang(draw: random.Random, pods: tuple[int, ...], gpus: tuple[int, ...], levels: tuple[str, ...]) -> Wanted:
    required = draw.choice([None] * 6 + ["node", *levels])
    return Wanted(draw.choice(pods), draw.choice(gpus), draw.random() < 0.25, required, draw.random() < 0.3)
