"""One run: its configuration, the training loop, evaluation, journal, checkpoints and what the terminal shows."""
