"""Programs that a launch script carries: standard library only, Python 3.10 or newer, run beside veRL."""
