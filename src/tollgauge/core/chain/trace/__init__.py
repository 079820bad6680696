"""Trace: the payments by authorization (EIP-3009) in a transaction.

Modules parse the responses of a node: `transaction` its objects, in any form that `forms` knows,
`calldata` and `nesting` the call data, `call_trace` the node's trace, `logs` the receipt. `decode`
finds the payments in them, and `answer` writes the JSON. clients/chain/transactions queries nodes.
"""
