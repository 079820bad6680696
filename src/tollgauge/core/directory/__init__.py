"""What directories and sellers' files say of endpoints."""
