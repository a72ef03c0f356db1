"""Run folders: what a run was asked for, how far it has got, how it ended, and the locks on it."""
