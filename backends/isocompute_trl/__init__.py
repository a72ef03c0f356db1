"""TRL 1.16 as a backend of isocompute."""

from isocompute_trl.backend import TRLBackend

__all__ = ["TRLBackend"]
