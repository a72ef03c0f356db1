"""The paper's laws and digitised figures, shipped as package data with their provenance."""

from isocompute_sdk.laws.catalogue import digitised, find_published, hedged_prior, measured_easy, published_names

__all__ = ["digitised", "find_published", "hedged_prior", "measured_easy", "published_names"]
