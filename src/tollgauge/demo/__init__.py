"""A small market on this machine: a chain, a facilitator, sellers and their directory.

These are counterparties of tollgauge, not parts of it. Only the command line imports this package,
and the service reaches it only through sockets.
"""
