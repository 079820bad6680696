"""Changes of endpoints, and the alerts that owners of watches receive."""
