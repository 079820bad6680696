"""Rows read from chains: cursors, wallets, transfers, volumes and deposits."""
