"""Directories of endpoints: a module for each kind."""
