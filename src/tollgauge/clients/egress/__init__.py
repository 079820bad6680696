"""Requests to addresses that others choose; nothing else connects to them."""
