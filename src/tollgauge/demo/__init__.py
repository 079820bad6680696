"""A small world on this machine: sellers, a directory, a chain, a facilitator."""
