"""Decisions that need rows: the layer between loops or HTTP and the tables."""
