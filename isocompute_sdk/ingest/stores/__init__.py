"""How logs lie on disk: event files, journals, W&B, MLflow, consoles, configurations. What they mean: `formats`."""
