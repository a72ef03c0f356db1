"""Choosing an allocation: executable candidates, what each costs, and which one is preferred."""
