"""Clients of external services; each module maps foreign errors to tollgauge's own."""
