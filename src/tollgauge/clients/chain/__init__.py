"""What nodes of a chain are asked, over JSON-RPC."""
