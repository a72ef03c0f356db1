"""Forecast of one run from its own evaluations, with what other runs taught about such curves."""
