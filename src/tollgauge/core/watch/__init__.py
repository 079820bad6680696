"""Changes, and the notices that buyers of watches get."""
