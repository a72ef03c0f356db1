"""Calling the user's reward function in a process of its own, with a time limit per call."""
