"""The inside of one node: links and their speeds, documents and classes of machines, the best set of GPUs."""
