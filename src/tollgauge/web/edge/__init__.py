"""The front of all routes: connections, limits, cache, headers and problems."""
