"""Rows of endpoints, of their listings in directories, and of sellers' files."""
