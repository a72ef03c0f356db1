"""Whole campaigns: sweep, fit, plan, train and refit; where runs execute; predictions beside outcomes."""
