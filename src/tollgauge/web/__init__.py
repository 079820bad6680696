"""HTTP: routes, pages and MCP tools."""
