"""Directories of endpoints, one small file each."""
