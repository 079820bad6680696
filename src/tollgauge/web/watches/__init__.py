"""What the owner of a watch may do: poll, edit, cancel, rotate its secret."""
