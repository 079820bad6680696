"""Rows of payments to this service: the ledger, payer limits and reconciliation."""
