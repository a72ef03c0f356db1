"""The paper's laws and digitised figures, shipped as package data with their provenance."""

from isocompute_sdk.laws.catalogue import digitised, find_published, measured_easy, published_names
from isocompute_sdk.laws.prior import hedged_prior

__all__ = ["digitised", "find_published", "hedged_prior", "measured_easy", "published_names"]
