"""MCP server: products and free routes as tools for agents."""

from typing import Final

PATH: Final = "/mcp"
