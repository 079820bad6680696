"""Probes: the schedule, the outcome of each request, and the attribution of failures."""
