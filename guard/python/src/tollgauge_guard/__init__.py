"""A guard for x402 clients: it refuses a bad payment before it is signed."""
