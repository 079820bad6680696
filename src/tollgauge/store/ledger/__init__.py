"""Rows of payments to this service: the ledger, its limits, its books."""
