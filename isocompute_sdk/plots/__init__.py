"""Figures of fits and plans."""
