"""Campaigns: sweep, fit, plan, train and refit; executors of runs; predictions against outcomes."""
