"""Scores, their evidence and forecasts, and what is published of them."""
