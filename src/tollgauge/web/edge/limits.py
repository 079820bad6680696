"""The sizes that every request is held to, in bytes. That of a payment header is the protocol's:
core/sale/payment.HEADER_MAX.
"""

from __future__ import annotations

from typing import Final

URL_MAX: Final = 4_096
"""Path and query."""
BODY_MAX: Final = 65_536
HEADERS_MAX: Final = 32_768
"""The names and values of all headers."""
