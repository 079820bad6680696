"""The same products as tools for agents."""

from typing import Final

PATH: Final = "/mcp"
"""Where they are called over HTTP."""
