"""Loops that turn: each does one round of work and says what it did."""
