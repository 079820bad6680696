"""Trace: the payments in a transaction.

`transaction` parses the objects of a node, `calldata` and `nesting` the call data, `transfers` the
logs and the node's call trace. `decode` finds the payments in them; clients/chain/transactions
queries the nodes.
"""
