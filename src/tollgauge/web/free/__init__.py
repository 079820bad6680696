"""Free JSON routes and files for machines."""
