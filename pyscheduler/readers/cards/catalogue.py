"""Which metrics of which exporter give each quantity of a card, in what unit, and what their absence means."""

from __future__ import annotations

from collections.abc import Sequence

from pyscheduler.core.capacity.config import FaultConfig
from pyscheduler.core.capacity.quantities import Quantity
from pyscheduler.readers.cards.amd_catalogue import amd_sources
from pyscheduler.readers.cards.catalogue_entries import Many, Metric, Source
from pyscheduler.readers.cards.dcgm_catalogue import dcgm_sources

__all__ = ["catalogue"]


def catalogue(
    amd_prefix: str = "", evidence: str | None = None, harmless_xids: Sequence[int] = FaultConfig().harmless_xids
) -> tuple[Source, ...]:
    """Return all sources; of one quantity the preferred comes first.

    Parameters
    ----------
    amd_prefix
        What AMD's exporter is told to put before its names (``MetricsFieldPrefix``).
    evidence
        A metric of somebody else that says of a card how good it is, 0 to 1.
    harmless_xids
        Codes that an application causes; all others are fatal.

    """
    others = (Source(Quantity.EVIDENCE, (Metric(evidence, most=1.0, many=Many.LOWEST),)),) if evidence else ()
    return (*dcgm_sources(harmless_xids), *amd_sources(amd_prefix), *others)
