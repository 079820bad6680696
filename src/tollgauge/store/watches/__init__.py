"""Rows of watches, their destinations and their deliveries."""
