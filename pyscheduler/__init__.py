"""pyscheduler: a kube-scheduler whose GPU decisions are made in Python."""

from __future__ import annotations

from pyscheduler.core.capacity.decay import compute_capacity_score

__all__ = ["__version__", "compute_capacity_score"]

__version__ = "0.1.0"
