"""Output of benchmarks: what the links of a machine, and between machines, were seen to carry."""
