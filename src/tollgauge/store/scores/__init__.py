"""Rows of scores, their evidence, forecasts and bundles."""
