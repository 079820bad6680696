"""Rows and core types, nothing else: what the service remembers."""
