"""The scoring policy: a frozen, versioned table that anyone can read.

A change of any number here is a new version beside the old one; each score names its version.
The methodology page and the reference docs are generated from this table.
"""
