"""OpenRLHF 0.11.2 as a backend of isocompute."""

from isocompute_openrlhf.backend import OpenRLHFBackend

__all__ = ["OpenRLHFBackend"]
