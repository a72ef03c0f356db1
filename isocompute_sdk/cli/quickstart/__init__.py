"""`isocompute quickstart`: the closed loop on a built-in task, or the measurements of the paper."""
