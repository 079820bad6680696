"""The envelope linter: what an answer asks to be paid, and what is wrong with how it asks."""

from tollgauge.core.lint.accepts import terms_of_accepts

__all__ = ["terms_of_accepts"]
