"""From the logs of one run to rows of a table: metrics with units, and what a log has lost."""
