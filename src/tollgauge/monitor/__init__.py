"""Decisions that need rows: the floor between loops or HTTP and the tables."""
