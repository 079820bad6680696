"""The read side: figures for the API, MCP, pages and the command line.

Every figure is an integer in the unit that its name says: tenths (of a point or of a percent),
hundredths, permille, milliseconds, or milliseconds UTC. web/wire turns them into JSON, and
web/pages/views into HTML.
"""
