"""Where nodes are in a network: labels, Slurm, Topograph."""
