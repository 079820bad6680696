"""What is true: pure, synchronous functions of their arguments.

No IO, no clock, no randomness, no environment. `now` is an argument, money and scores are
integers, instants are integer milliseconds UTC.
"""
