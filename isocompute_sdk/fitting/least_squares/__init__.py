"""Solvers: many small least-squares problems at once, and the outcome of a fit."""
