"""Rows and core types: load and save the service's state, without deciding what it means."""
