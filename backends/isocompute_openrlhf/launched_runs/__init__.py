"""Runs that our launch script started: their logs, consoles and samples."""
