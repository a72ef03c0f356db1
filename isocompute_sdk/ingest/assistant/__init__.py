"""Help with logs that do not say everything themselves: what is there, a proposed mapping, a mapping read."""
