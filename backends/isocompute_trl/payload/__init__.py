"""Programs that a launch script carries: the standard library and TRL, Python 3.10 or newer."""
