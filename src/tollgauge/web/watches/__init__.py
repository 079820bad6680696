"""The routes of a watch's owner."""
