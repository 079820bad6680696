"""Rows of what was read from chains: cursors, transfers, volumes, deposits."""
