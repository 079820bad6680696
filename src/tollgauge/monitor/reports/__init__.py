"""The read side: the one place from which API, MCP, pages and the command line get their figures.

Every figure here is an integer in the unit that its name says: tenths (of a point or of a percent),
hundredths, permille, milliseconds, or milliseconds UTC. web/wire turns them into JSON, and
web/pages/views into HTML. There is a file for each noun: `snapshots` (of one endpoint, of a host),
`leaderboard` (the best), `incidents` (what changed), `endpoint` (a whole page of one, and its raw
probes), `pace` (how often it is probed), `lint` (what its last probe found wrong), `improvements`
(what would raise its score), `trust` (reports, and the preview's samples) and `counts` (the
ecosystem).
"""
