"""What every request passes: connections, limits, sizes, cached bytes, headers, errors."""
