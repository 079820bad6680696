"""What an endpoint is: its identity, its terms, its site, and findings about it."""
