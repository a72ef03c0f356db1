"""What to do with a run that is in trouble, or may be: options with their predicted rewards and commands."""
