"""The envelope linter: what is wrong with a 402, in the words of rules."""
