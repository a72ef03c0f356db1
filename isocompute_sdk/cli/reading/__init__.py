"""Commands about what was logged already: reading it, examining it, auditing it."""
