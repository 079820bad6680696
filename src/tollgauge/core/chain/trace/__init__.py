"""Trace: which payments by authorization (EIP-3009) a transaction holds.

Modules read what a node sent: `transaction` its objects, in any form that `forms` knows, `calldata`
and `nesting` the call data, `call_trace` the node's trace, `logs` the receipt. `decode` finds the
payments in them, `answer` writes the JSON. Asking a node is clients/chain/transactions' work.
"""
