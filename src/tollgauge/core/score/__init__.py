"""From evidence to a score, its flags and its advice."""
