"""Reward curves, frontier and allocation laws: numerics only, float64 arrays and frozen dataclasses."""
