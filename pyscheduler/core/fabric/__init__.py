"""Between nodes: where they hang, Kruskal's merges of domains, how many pods fit where, how a job is spread."""
