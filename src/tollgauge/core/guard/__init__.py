"""What the guard knows before a payment."""
