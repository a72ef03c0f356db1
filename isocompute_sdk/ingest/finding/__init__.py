"""Which logs, tables and checkpoints lie at or below a path, and which of them belong to one run."""
