"""Descriptions of one machine by tools of no vendor: NCCL, hwloc, DRA."""
