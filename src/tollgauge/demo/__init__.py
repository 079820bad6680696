"""A small world on this machine: a chain, a facilitator, sellers and a directory of them.

Everything here is a counterparty of tollgauge, never a part of it: nothing but the command line
imports this package, and the service meets it only through sockets.
"""
