"""Payments for what we sell, and signatures of what was sold."""
