"""The official TypeScript SDK as an MCP client (mcp_client.mjs)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.programs import require


async def call_tools(*transports: Sequence[str], env: Mapping[str, str]) -> Any:
    """Return what the client receives over each transport: a URL, or a command with arguments."""
    process = await asyncio.create_subprocess_exec(
        require("node"),
        str(Path(__file__).with_suffix(".mjs")),
        *map(json.dumps, transports),
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)
