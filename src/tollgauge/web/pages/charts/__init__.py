"""Pictures on the pages, drawn on the server as SVG."""
