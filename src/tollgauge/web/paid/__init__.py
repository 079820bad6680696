"""Paid routes: the gate between a request with a payment and its answer, and the products."""
