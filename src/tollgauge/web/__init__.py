"""Answers the outside over HTTP."""
