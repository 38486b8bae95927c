"""What `nvidia-smi` prints."""
