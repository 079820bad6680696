"""The referee: the behaviour of the official clients decides which envelopes are payable.

`tollgauge bench oracle` generates good and broken envelopes for every scheme, network, version and
transfer method of the installed SDKs, asks every client to sign them, and compares the answers with
the linter's. The clients have no network access; stub nodes answer for the chains.
"""
