"""Routes for the owner of a watch: poll, edit, cancel, rotate the secret."""
