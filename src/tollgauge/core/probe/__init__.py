"""One request to an endpoint: when, how, what it gave, and whose fault a failure is."""
