"""The decisions, pure: no network, clock, environment, logging, threads or randomness. Time is an argument."""
