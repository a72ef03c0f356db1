"""Sections of the report, each as typed blocks."""
