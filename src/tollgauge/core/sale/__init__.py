"""Payments for the service's products, and signatures of the products."""
