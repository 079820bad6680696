"""Example answers, for OpenAPI. docs/response_examples.py records some of them."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Final

import orjson

RESOURCE: Final = "https://api.example.com/weather"
BASE_URL: Final = "https://tollgauge.example.com"
"""The service's URL in the recorded answers; /openapi.json replaces it."""
PAY_TO: Final = "0x209693bc6afc0c5328ba36faf03c514ef312287c"
TICKET: Final = "MDEyMzQ1Njc4OWFiY2RlZg"
PUBLIC_KEY: Final = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
"""The key of RFC 8037, appendix A.2."""


@cache
def read_example(name: str) -> Any:
    """Return an example answer as a JSON value."""
    return orjson.loads(resources.files(__package__).joinpath(f"{name}.json").read_bytes())
