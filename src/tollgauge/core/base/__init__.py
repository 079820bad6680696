"""Units, text, errors and exact arithmetic."""
