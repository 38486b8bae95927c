"""The commands. Thin: they read arguments and call the rest."""
