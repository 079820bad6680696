"""The name under which configuration knows a node's settings; they live in clients/rpc."""

from tollgauge.clients.rpc import RpcSettings

__all__ = ["RpcSettings"]
