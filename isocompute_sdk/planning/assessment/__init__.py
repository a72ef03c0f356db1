"""What to think of a plan: its verdict, its caveats, and the other allocations worth knowing about."""
