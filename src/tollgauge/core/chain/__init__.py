"""What a chain shows: settlements, blocks, calls."""
