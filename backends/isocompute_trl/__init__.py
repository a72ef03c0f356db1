"""TRL 1.16 as a backend of isocompute."""

from isocompute_trl.flags import TRLBackend

__all__ = ["TRLBackend"]
