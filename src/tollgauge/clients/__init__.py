"""Clients of everybody outside: each module maps foreign errors to our own."""
