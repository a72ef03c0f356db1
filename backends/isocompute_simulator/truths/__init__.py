"""Simulated tasks: noise-free rewards as a function of compute, group size and problems per batch."""
