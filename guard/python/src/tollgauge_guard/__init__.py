"""A guard for x402 clients: it refuses a bad payment before it is signed.

    http = guarded(x402Client, bundle="https://trust.example.com/trust/bundle", key=FINGERPRINT)

The parts: `decision` judges an offer (pure), `bundle` says what is known of an endpoint, `journal`
keeps budgets and payments, `guard` ties them, and `hooks` with one module for each client plugs it
into the official x402 SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from x402 import x402Client, x402ClientSync

from tollgauge_guard import defaults
from tollgauge_guard.bundle import read_bundle
from tollgauge_guard.bundle_source import BundleSource, FileBundle, FixedBundle, RemoteBundle
from tollgauge_guard.decision import Allow, Ask, Code, Decision, Refuse, decide
from tollgauge_guard.errors import GuardError
from tollgauge_guard.guard import AskFunction, Guard
from tollgauge_guard.httpx_client import GuardedClient
from tollgauge_guard.journal import Journal
from tollgauge_guard.journal_file import MEMORY
from tollgauge_guard.policy import CENT, DOLLAR, Pin, Policy, Unknown
from tollgauge_guard.request import PaymentRefusedError, PaymentUnresolved
from tollgauge_guard.signature import pin
from tollgauge_guard.units import Asset

if TYPE_CHECKING:
    from tollgauge_guard.requests_client import GuardedSession

__all__ = [
    "CENT",
    "DOLLAR",
    "MEMORY",
    "Allow",
    "Ask",
    "Asset",
    "Code",
    "Decision",
    "Guard",
    "GuardError",
    "GuardedClient",
    "PaymentRefusedError",
    "PaymentUnresolved",
    "Pin",
    "Policy",
    "Refuse",
    "Unknown",
    "decide",
    "guarded",
    "open_guard",
]

Key = str | Mapping[str, object]
Bundles = str | Path | tuple[bytes, str] | BundleSource


def open_guard(
    *,
    bundle: Bundles,
    key: Key = "",
    policy: Policy | None = None,
    journal: Path | str | None = None,
    ask: AskFunction | None = None,
    cache: Path | None = None,
    nodes: Mapping[str, str] | None = None,
) -> Guard:
    """A guard.

    `bundle` is a URL, the path of a file with its signature beside it (`.jws`), a pair of the
    bundle's bytes and its signature, or a source of your own. `key` is the public JWK that signs
    bundles, or its fingerprint. `journal` is a file (default: one for each user) or `MEMORY`;
    `cache` is the folder where bundles are kept. `ask` is called where a payment needs consent.
    `nodes` are URLs of JSON-RPC nodes by network, such as `{"eip155:8453": "https://…"}`: they say
    what became of a payment without an answer. Without one no second payment is signed for it.

    Raises GuardError where the key, the file or the journal cannot be used.
    """
    return Guard(
        bundles=_source(bundle, key, cache or defaults.cache_folder()),
        policy=policy or Policy(),
        journal=Journal(defaults.journal_file() if journal is None else journal),
        ask=ask,
        nodes=nodes or {},
    )


@overload
def guarded(
    client: x402Client,
    *,
    bundle: Bundles,
    key: Key = "",
    policy: Policy | None = None,
    journal: Path | str | None = None,
    ask: AskFunction | None = None,
    cache: Path | None = None,
    nodes: Mapping[str, str] | None = None,
    **options: Any,
) -> GuardedClient: ...


@overload
def guarded(
    client: x402ClientSync,
    *,
    bundle: Bundles,
    key: Key = "",
    policy: Policy | None = None,
    journal: Path | str | None = None,
    ask: AskFunction | None = None,
    cache: Path | None = None,
    nodes: Mapping[str, str] | None = None,
    **options: Any,
) -> GuardedSession: ...


def guarded(
    client: x402Client | x402ClientSync,
    *,
    bundle: Bundles,
    key: Key = "",
    policy: Policy | None = None,
    journal: Path | str | None = None,
    ask: AskFunction | None = None,
    cache: Path | None = None,
    nodes: Mapping[str, str] | None = None,
    **options: Any,
) -> GuardedClient | GuardedSession:
    """An HTTP client that pays with an x402 client, and only what the guard allows.

    An `x402Client` becomes an `httpx.AsyncClient`, with that client's own `options`; an
    `x402ClientSync` becomes a `requests.Session`, with the `options` of requests' `HTTPAdapter`.
    The other arguments are those of `open_guard`. Raises GuardError.
    """
    guard = open_guard(
        bundle=bundle, key=key, policy=policy, journal=journal, ask=ask, cache=cache, nodes=nodes
    )
    if isinstance(client, x402Client):
        return GuardedClient(guard, client, **options)
    from tollgauge_guard.requests_client import GuardedSession  # only who uses it has requests

    return GuardedSession(guard, client, **options)


def _source(bundle: Bundles, key: Key, cache: Path) -> BundleSource:
    if isinstance(bundle, tuple):
        return FixedBundle(read_bundle(*bundle, pin(key)))
    if isinstance(bundle, Path):
        return FileBundle(bundle, pin(key))
    if isinstance(bundle, str):
        if bundle.startswith(("https://", "http://")):
            return RemoteBundle(bundle, pin(key), cache=cache)
        return FileBundle(Path(bundle), pin(key))
    return bundle
