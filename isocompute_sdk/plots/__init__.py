"""Figures of fits, plans and audits."""
