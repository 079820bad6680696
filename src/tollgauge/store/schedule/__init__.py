"""When which host is probed."""
