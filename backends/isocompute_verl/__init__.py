"""veRL 0.9.1 as a backend of isocompute."""

from isocompute_verl.flags import VeRLBackend

__all__ = ["VeRLBackend"]
