"""Lists of endpoints in order."""
