"""Calls to the nodes of a chain, over JSON-RPC."""
