"""Background loops. Each function performs one round of work and returns a tally of it."""
