"""Listings of directories and files of sellers."""
