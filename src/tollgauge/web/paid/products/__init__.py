"""What is sold at once, one file a product; a watch is sold by web/watches."""
