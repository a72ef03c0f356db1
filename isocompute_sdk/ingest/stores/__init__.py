"""How logs lie on disk: event files, tables, journals, consoles, saved configurations. What they mean: `formats`."""
