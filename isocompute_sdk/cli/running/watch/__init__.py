"""`isocompute watch`: report trouble of runs in progress."""
