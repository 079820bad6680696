"""Asks the outside: one file per counterparty, each maps foreign errors to our own."""
