"""The signals: each question that a score asks, in one small file.

Files named after a component (uptime, compliance, latency, age, activity, stability) return its
exact subscore from 0 to 100. Files of flags (reach, envelope, terms, settlements, standing) hold
one function a flag; its docstring is the rule in words. `facts` and `settled` prepare what they
all read. Docstrings of components and flags are shown to users on the methodology page.
"""
