"""Requests to addresses that others choose; no other package connects to them."""
