"""The published JSON Schemas of documents that leave this program."""
