"""The frontier of a set of curves, and the laws through it."""
