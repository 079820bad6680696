"""Read figures for the API, MCP, pages and the command line.

All figures are integers. The unit is in the name: tenths (of a point or a percent), hundredths,
permille, milliseconds, or milliseconds UTC. web/wire formats them as JSON, web/pages/views as HTML.
"""
