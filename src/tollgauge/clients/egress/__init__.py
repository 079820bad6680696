"""The one way out to addresses that others choose."""
