"""The free routes that machines read."""
