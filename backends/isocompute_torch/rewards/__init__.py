"""Calling the user's reward function in a separate process, with a time limit per call."""
