"""Similarity: which endpoints serve a similar purpose, by what their providers say of them.

`terms` reads a provider's text into weighted terms; `index` finds the endpoints whose terms are
most alike. docs/similarity.md has how good that is on labelled services, and what else was tried.
"""
