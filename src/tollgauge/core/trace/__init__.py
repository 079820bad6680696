"""Trace: which payments by authorization (EIP-3009) a transaction holds.

Pure functions over what an Ethereum node sends: transaction reads its objects (in all the forms of
forms), calldata and nesting the call data, call_trace the node's own trace, logs the receipt;
decode puts them together, answer makes the JSON. Asking a node is clients/chain/transactions' work.
"""
