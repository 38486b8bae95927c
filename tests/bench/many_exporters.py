"""DCGM exporters of a large cluster for `tests.bench.polls`, in a process of their own: `python -m tests.bench.many_exporters`.

The readings are those of a small simulated fleet, whose nodes and cards take the names of the large cluster's in turn. All cards
work. The first line of the output is the port; `/node/NAME/metrics` is what the exporter of a node serves.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Final

from tests.bench.large_objects import NodeText
from tests.sim.exporter import Exporters
from tests.sim.fleet import FleetPlan, Generation, Pool, fleet
from tests.sim.live import LiveFleet
from tests.sim.models import H100

# Nodes whose readings are simulated.
SIMULATED: Final = 16
# Of faults, of speed, and of what is free, the metrics that weigh most. A list of counters as in deploy/prometheus has 28.
TWELVE: Final = (
    "DCGM_EXP_GPU_HEALTH_STATUS",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_ROW_REMAP_FAILED",
    "DCGM_FI_DEV_SM_CLOCK_HERTZ",
    "DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS",
    "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    "DCGM_FI_DEV_PCIE_REPLAY_TOTAL",
    "DCGM_FI_DEV_NVLINK_CRC_ERROR_TOTAL",
    "DCGM_FI_PROF_SM_UTIL_RATIO",
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
)


class ManyExporters(Exporters):
    """Exporters of so many nodes.

    Parameters
    ----------
    nodes
        How many.
    interval_s
        How often their readings change.
    only
        Metrics that they serve; all where empty.

    """

    def __init__(self, nodes: int, interval_s: float, only: Collection[str] = ()) -> None:
        plan = FleetPlan(seed=1, sigma=0.03, pools=(Pool(H100, SIMULATED, (Generation.NEW,)),), fault_share=0)
        super().__init__(LiveFleet(fleet(plan), interval_s=interval_s))
        for card in range(len(self.live.fleet.cards)):
            self.live.work([card])
        self._only = tuple(f"{name}{{" for name in only)
        self._names: dict[str, tuple[str, dict[str, str]]] = {}
        for number in range(nodes):
            node = NodeText(number)
            simulated = number % SIMULATED
            cards = [card.uuid for card in self.live.fleet.cards if card.node == simulated]
            name = self.live.fleet.nodes[simulated].name
            self._names[node.name] = (name, dict(zip((name, *cards), (node.name, *node.handles), strict=True)))

    def answer(self, path: str) -> tuple[int, str]:
        """Return status and text of a path of the large cluster."""
        _, kind, node, page = path.split("/", 3)
        simulated, names = self._names[node]
        status, text = super().answer(f"/{kind}/{simulated}/{page}")
        if self._only:
            text = "".join(line for line in text.splitlines(keepends=True) if line.startswith(self._only))
        for name, there in names.items():
            text = text.replace(f'"{name}"', f'"{there}"')
        return status, text


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--interval", type=float, required=True)
    parser.add_argument("--all", action="store_true", help="all metrics, not only the twelve")
    asked = parser.parse_args()
    exporters = ManyExporters(asked.nodes, asked.interval, () if asked.all else TWELVE)
    print(exporters.address.rpartition(":")[2], flush=True)
    exporters.serve()


if __name__ == "__main__":
    main()
