"""The data that the guard has before a payment."""
