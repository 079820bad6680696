"""A guard for x402 clients: it refuses a bad payment before it is signed, and never has two
unanswered payments for one purchase.

    http = guarded(x402Client, bundle="https://trust.example.com/trust/bundle", key=FINGERPRINT)

`decision` judges an offer (pure), `payment` is the table of states, `bundle` contains the records
of endpoints, `journal` records payments and budgets, `guard` connects them, and `hooks` with one
module per client plugs it into the official x402 SDK.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, overload

from x402 import x402Client, x402ClientSync

from tollgauge_guard import defaults
from tollgauge_guard.approval import ApprovalQueue, AskFunction
from tollgauge_guard.bundle import read_bundle
from tollgauge_guard.bundle_source import BundleSource, FileBundle, FixedBundle, RemoteBundle
from tollgauge_guard.codes import Code
from tollgauge_guard.decision import Allow, Ask, Decision, Refuse, decide
from tollgauge_guard.errors import GuardError
from tollgauge_guard.guard import Guard, OnChange
from tollgauge_guard.httpx_client import GuardedClient
from tollgauge_guard.journal import Journal
from tollgauge_guard.journal_file import MEMORY, Store
from tollgauge_guard.nodes import NodeReader
from tollgauge_guard.opinion import Preflight
from tollgauge_guard.payment import PayAgain, Payment, State
from tollgauge_guard.policy import CENT, DOLLAR, Policy, Trust, Unknown
from tollgauge_guard.receipt import IsAnswer
from tollgauge_guard.refusal import PaymentRefusedError, PaymentUnresolved
from tollgauge_guard.request import paying
from tollgauge_guard.sign_in import SignInAccount
from tollgauge_guard.signature import pin_keys
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
    "PayAgain",
    "Payment",
    "PaymentRefusedError",
    "PaymentUnresolved",
    "Policy",
    "Refuse",
    "State",
    "Store",
    "Trust",
    "Unknown",
    "decide",
    "guarded",
    "open_guard",
    "paying",
]

Key = str | Mapping[str, object]
Bundles = str | Path | tuple[bytes, str] | BundleSource


def open_guard(
    *,
    bundle: Bundles,
    key: Key | Sequence[Key] = (),
    policy: Policy | None = None,
    journal: Path | str | Store | None = None,
    durable: bool = False,
    ask: AskFunction | None = None,
    approver: str | None = None,
    cache: Path | None = None,
    nodes: Mapping[str, str | Sequence[str]] | None = None,
    is_answer: IsAnswer | None = None,
    on_change: OnChange | None = None,
    sign_in: SignInAccount | None = None,
) -> Guard:
    """Open a guard.

    Args:
        bundle: a URL, the path of a file whose signature is in the file with the suffix `.jws`, a
            pair of bytes and signature, or your own source.
        key: the public JWK that signs bundles, or its fingerprint; one or several.
        policy: the owner's rules. Default: `Policy()`.
        journal: a file, `MEMORY`, the URL of a PostgreSQL database (`postgresql://…`), or a store
            of yours. Default: one file per user.
        durable: a signed payment also survives a power failure.
        ask: called if a payment needs consent.
        approver: the public key of the approver who answers with `tollgauge-guard approve`; used
            if there is no `ask`.
        cache: the folder for downloaded bundles. Default: one per user.
        nodes: URLs of JSON-RPC nodes by network, such as `{"eip155:8453": "https://…"}`: they show
            the state of a payment without an answer. Without one, no payment is assumed dead.
        is_answer: called with status, headers and body of a complete 2xx; False means that it does
            not answer the purchase.
        on_change: called after each change of a payment's state.
        sign_in: the account that pays, if it may sign in (extension `sign-in-with-x`): the answer
            to an earlier payment is requested in this way before anything else is tried.

    Raises:
        GuardError: a key, a file, a URL or the journal cannot be used.
    """
    opened = Journal(defaults.journal_file() if journal is None else journal, durable=durable)
    return Guard(
        bundles=_source(bundle, key, cache or defaults.cache_folder()),
        policy=policy or Policy(),
        journal=opened,
        ask=ask,
        queue=None if approver is None else ApprovalQueue(opened.file, approver),
        nodes=NodeReader(nodes),
        is_answer=is_answer,
        on_change=on_change,
        preflight=Preflight(bundle) if _is_url(bundle) else None,
        account=sign_in,
    )


@overload
def guarded(client: x402Client, **options: Any) -> GuardedClient: ...


@overload
def guarded(client: x402ClientSync, **options: Any) -> GuardedSession: ...


def guarded(client: x402Client | x402ClientSync, **options: Any) -> GuardedClient | GuardedSession:
    """Return an HTTP client that pays with an x402 client if the guard allows it.

    An `x402Client` becomes an `httpx.AsyncClient`, an `x402ClientSync` a `requests.Session`.

    Args:
        client: the official client with its wallets.
        options: the arguments of `open_guard`; all others are those of `httpx.AsyncClient`, or of
            requests' `HTTPAdapter`.

    Raises:
        GuardError: as `open_guard`.
    """
    names = inspect.signature(open_guard).parameters
    guard = open_guard(**{name: options.pop(name) for name in names if name in options})
    if isinstance(client, x402Client):
        return GuardedClient(guard, client, **options)
    from tollgauge_guard.requests_client import GuardedSession  # requests is optional

    return GuardedSession(guard, client, **options)


def _is_url(bundle: Bundles) -> TypeGuard[str]:
    return isinstance(bundle, str) and bundle.startswith(("https://", "http://"))


def _source(bundle: Bundles, key: Key | Sequence[Key], cache: Path) -> BundleSource:
    if isinstance(bundle, tuple):
        return FixedBundle(read_bundle(*bundle, pin_keys(key)))
    if isinstance(bundle, Path):
        return FileBundle(bundle, pin_keys(key))
    if isinstance(bundle, str):
        if _is_url(bundle):
            return RemoteBundle(bundle, pin_keys(key), cache=cache)
        return FileBundle(Path(bundle), pin_keys(key))
    return bundle
