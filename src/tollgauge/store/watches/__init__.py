"""Rows of watches, their destinations, and what is to be delivered to them."""
