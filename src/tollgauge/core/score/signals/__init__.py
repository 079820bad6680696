"""Signals: the components and the flags of a score.

`components` holds one function for each component of a score. `reach`, `envelope`, `terms`,
`settlements` and `known` hold one function for each flag; its docstring is the rule in words.
`facts` and `volume` compute what they all need. The docstrings of components and flags are shown
to users on the methodology page.
"""
