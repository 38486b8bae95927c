"""Which pods go so that one of higher priority, or a group, gets its GPUs."""
