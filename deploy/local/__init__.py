"""A real Kubernetes control plane with simulated GPU nodes on one Linux machine, for tests and the demo."""
