"""The same products as tools for agents."""
