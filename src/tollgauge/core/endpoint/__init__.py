"""An endpoint's identity, terms and site, and findings about it."""
