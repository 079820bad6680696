"""The wire: what a report looks like as JSON, and the schema that the interface description shows.

Models here are shapes only: every figure arrives as the integer that `reports` and core/score/score
publish, and becomes a decimal, a dollar or an ISO time in one of the small functions of `figures`.
A file for each noun: `scores` what follows from a score alone, `trust` the report that carries
one, `snapshots` what is free of it, `counts` the ecosystem. Products keep the shapes of their own
answers beside them.
"""
