"""Trust and reliability scores for pay-per-call (x402) endpoints."""
