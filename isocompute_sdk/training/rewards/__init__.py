"""Reward functions that a run can use as they are; `isocompute problems --reward` writes a copy."""
