"""Seconds per step: read from logs, measured by a probe, summed up as what runs have cost."""
