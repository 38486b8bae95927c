"""What `rocm-smi` and `amd-smi` print."""
