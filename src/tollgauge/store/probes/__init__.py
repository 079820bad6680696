"""Rows of probes, closed days, vantages and changes."""
