"""Rows of endpoints, of the directories that list them, and of their scores."""
