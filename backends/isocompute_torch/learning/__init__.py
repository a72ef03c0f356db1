"""One update: rollouts laid out for the model, scored, and turned into an optimiser step."""
