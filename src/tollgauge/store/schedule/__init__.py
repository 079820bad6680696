"""Rows of the probe schedule: hosts, leases and budgets."""
