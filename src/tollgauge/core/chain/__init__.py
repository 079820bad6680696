"""Settlements, blocks and calls read from a chain."""
