"""Groups of pods that start together or not at all."""
