"""Endpoints with their figures, and how lists filter and sort them."""
