"""Forecasts against outcomes."""
