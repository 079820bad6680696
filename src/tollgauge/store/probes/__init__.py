"""Rows of probes, open and closed days, and of the changes that they showed."""
