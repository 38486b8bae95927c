"""How much each card can do: faults, speed under load, and what of it is free now, from samples of its metrics."""
