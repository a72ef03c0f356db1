"""How specs are written: quantities, the YAML subset, and what a failed check says."""
