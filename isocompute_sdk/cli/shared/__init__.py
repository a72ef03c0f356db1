"""What several commands share: options, printing, progress."""
