"""The rules of the service as pure, synchronous functions.

They use no IO, clock, randomness or environment. `now` is an argument, money and scores are
integers, and times are integer milliseconds UTC.
"""
