"""Seconds per step: read from logs, measured by a probe, and summed over runs."""
