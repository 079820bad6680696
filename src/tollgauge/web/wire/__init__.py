"""JSON requests and answers: their models, their schemas, and the interface description."""
