"""A second opinion about unknown endpoints: the service's free preflight, if the owner wants it.

It reveals to the service which host is about to be paid, so it is off by default.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urljoin

import httpx

from tollgauge_guard.codes import Code
from tollgauge_guard.decision import Allow, Ask, Decision, Refuse

_TIMEOUT_S: Final = 5.0
_ABOUT: Final = frozenset({Code.UNKNOWN_RESOURCE, Code.BUNDLE_STALE})


class Preflight:
    """The preflight of a service. `transport` is for requests to it."""

    def __init__(self, service: str, *, transport: httpx.BaseTransport | None = None) -> None:
        self._url = urljoin(service, "/trust/preflight")
        self._transport = transport

    def decide(self, question: Ask, resource: str) -> Decision:
        """Return the service's decision about an unknown endpoint; the question if it has none.

        Blocks for at most five seconds. Never raises.
        """
        if question.code not in _ABOUT:
            return question
        terms = question.terms
        query = {
            "resource": resource,
            "payTo": terms.pay_to,
            "amount": str(terms.amount),
            "network": terms.network,
        }
        try:
            with httpx.Client(timeout=_TIMEOUT_S, transport=self._transport) as http:
                answer = http.get(self._url, params=query)
            document = answer.json() if answer.status_code == httpx.codes.OK else {}
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
            return question
        fields = document if isinstance(document, dict) else {}
        code = fields.get("code")
        match fields.get("decision"):
            case "allow":
                return Allow(terms)
            case "refuse" if code in tuple(Code):
                return Refuse(Code(str(code)), "The service refuses it in its preflight.")
        return question
