"""Evidence of format 1, built by hand, for the golden vectors of policy 1."""

from __future__ import annotations

from typing import Any

from tests.golden.reference import AS_OF, BASE_USDC, DAY, SELLER, WINDOW, bucket

TODAY = AS_OF // DAY
FULL = 2**48 - 1
Json = dict[str, Any]


def day(
    number: int,
    *,
    up: int = 48,
    scored: int = 48,
    ms: int = 240,
    compliance: int = 100,
    **more: Any,
) -> Json:
    """One day: `scored` half hours, `up` of them answered in `ms` with so much `compliance`."""
    row = {
        "day": number,
        "probes": scored,
        "scored": scored,
        "up": up,
        "compliant": up,
        "payable": up,
        "compliance": compliance * up,
        "slots": (1 << scored) - 1,
        "latencySum": ms * up,
        "latency": [[bucket(ms), up]] if up else [],
        "excluded": [],
    }
    return {**row, **more}


def days(**options: Any) -> list[Json]:
    """Thirty full days before today."""
    return [day(TODAY - back, **options) for back in range(29, -1, -1)]


def share(total_up: int, **options: Any) -> list[Json]:
    """Thirty days in which `total_up` of 1,440 probes were up."""
    base, extra = divmod(total_up, 30)
    return [day(TODAY - i, up=base + (i < extra), **options) for i in range(30)]


def last(**more: Any) -> Json:
    row = {
        "at": AS_OF - 60_000,
        "outcome": "payment-required",
        "up": True,
        "payable": True,
        "accepts": 1,
        "tlsNotAfter": AS_OF + 60 * DAY,
        "rules": [],
    }
    return {**row, **more}


def down(**more: Any) -> Json:
    return last(outcome="timeout", up=False, payable=False, accepts=None, tlsNotAfter=None) | more


def quote(amount: int = 5_000) -> Json:
    return {
        "network": "eip155:8453",
        "asset": BASE_USDC,
        "amount": str(amount),
        "payTo": SELLER,
    }


def change(kind: str, days_ago: int, source: str = "probe") -> Json:
    old, new = ("5000", "6000") if kind == "price-changed" else ("0x" + "4" * 40, SELLER)
    return {
        "at": AS_OF - days_ago * DAY,
        "kind": kind,
        "source": source,
        "before": old,
        "after": new,
    }


def payer(name: int | str, *, paid: int, transfers: int = 1, returned: int = 0) -> Json:
    address = name if isinstance(name, str) else f"0x{name:040x}"
    return {
        "payer": address,
        "transfers": transfers,
        "paid": str(paid),
        "returned": str(returned),
    }


def chain(payers: list[Json], *, hosts: int = 1, indexed: int = WINDOW) -> Json:
    return {
        "network": "eip155:8453",
        "payTo": SELLER,
        "indexedMs": indexed,
        "indexedToBlock": 31_000_000,
        "indexedTo": AS_OF - 120_000,
        "sharedHosts": hosts,
        "payers": payers,
    }


def evidence(**more: Any) -> Json:
    """An endpoint without a fault, known for a year, without settlements."""
    document: Json = {
        "format": 1,
        "resource": "https://api.seller.dev/v1/quote",
        "asOf": AS_OF,
        "firstSeen": AS_OF - 365 * DAY,
        "listed": True,
        "templated": False,
        "wildcard": False,
        "injection": False,
        "quote": quote(),
        "days": days(),
        "recent": {"scored": 6, "up": 6},
        "last": last(),
        "envelope": None,
        "changes": [],
        "chain": chain([]),
    }
    return {**document, **more}


def _dead() -> Json:
    return evidence(
        days=days(up=0), recent={"scored": 6, "up": 0}, last=down(), quote=None, chain=None
    )


def _free_and_down() -> Json:
    """An envelope without terms, then a time-out: the failure must not lift the cap."""
    rows = [
        *days(compliance=0, compliant=0, payable=0)[:-1],
        day(TODAY, up=47, compliance=0, compliant=0, payable=0),
    ]
    older = last(at=AS_OF - 3_600_000, accepts=0, payable=False)
    return evidence(days=rows, recent={"scored": 6, "up": 5}, last=down(), envelope=older)


def _noisy() -> Json:
    rules = [
        ["cache-control", "warn", "Send `Cache-Control: no-store` with the 402."],
        ["envelope-mismatch", "warn", "Make header and body ask for the same."],
    ]
    return evidence(days=days(compliance=92), last=last(rules=rules))


def _lint_error() -> Json:
    rules = [["resource-url", "error", "Make `resource.url` absolute."]]
    return evidence(days=days(compliance=50, compliant=0), last=last(rules=rules))


CASES: dict[str, Json] = {
    "perfect-fast": evidence(days=days(ms=180)),
    "perfect-slow": evidence(days=days(ms=1_500), chain=None),
    "everything-full": evidence(
        days=days(ms=90), chain=chain([payer(i + 1, paid=100_000_000) for i in range(100)])
    ),
    "uptime-93.5": evidence(days=share(1_346, ms=1_000)),
    "uptime-43.7-slow": evidence(days=share(629, ms=5_200), recent={"scored": 6, "up": 2}),
    "uptime-43.7-payable": evidence(
        days=share(629, ms=500, compliance=50, compliant=0), recent={"scored": 6, "up": 3}
    ),
    "age-and-stability-only": _dead(),
    "grade-of-the-rounded-score": evidence(days=days(ms=3_040)),
    "never-probed": evidence(days=[], recent={"scored": 0, "up": 0}, last=None, quote=None),
    "only-our-own-faults": evidence(
        days=[
            day(TODAY, up=0, scored=0, probes=20, excluded=[["common-mode", 12], ["dns-failed", 8]])
        ],
        recent={"scored": 0, "up": 0},
        last=None,
    ),
    "first-contact": evidence(
        firstSeen=AS_OF,
        days=[day(TODAY, up=1, scored=1, ms=310)],
        recent={"scored": 1, "up": 1},
        chain=None,
    ),
    "young-and-thin": evidence(
        firstSeen=AS_OF - 10 * DAY - 1, days=[day(TODAY - i, up=20, scored=20) for i in range(11)]
    ),
    "payto-changed-recently": evidence(changes=[change("payto-changed", 3)]),
    "payto-changed-before": evidence(changes=[change("payto-changed", 8)]),
    "price-changes-seen-twice": evidence(
        changes=[
            change("price-changed", 4),
            change("price-changed", 9),
            change("price-changed", 4, "bazaar"),
            change("price-changed", 31),
        ]
    ),
    "decoy-price": evidence(quote=quote(1_000_000_000)),
    "price-above-client-cap": evidence(quote=quote(1_000_001)),
    "not-payable": evidence(
        days=days(compliance=0, compliant=0, payable=0), last=last(accepts=0, payable=False)
    ),
    "not-payable-then-down": _free_and_down(),
    "wildcard-402": evidence(wildcard=True),
    "down-now": evidence(days=share(1_400), recent={"scored": 6, "up": 0}, last=down()),
    "lowest-cap-wins": evidence(wildcard=True, changes=[change("payto-changed", 1)]),
    "validates-first": evidence(
        days=days(compliance=0, compliant=0, payable=0),
        last=last(outcome="validates-first", accepts=None, payable=False),
    ),
    "tls-broken": evidence(
        days=share(1_434), recent={"scored": 6, "up": 5}, last=down(outcome="tls-failure")
    ),
    "warnings-and-mismatch": _noisy(),
    "payable-with-an-error": _lint_error(),
    "template-never-filled": evidence(
        templated=True,
        days=days(up=0),
        recent={"scored": 6, "up": 0},
        last=down(outcome="not-found"),
    ),
    "template-that-varies": evidence(
        templated=True, changes=[change("price-changed", 2), change("payto-changed", 2)]
    ),
    "delisted-injected-expiring": evidence(
        listed=False, injection=True, last=last(tlsNotAfter=AS_OF + 13 * DAY)
    ),
    "wash-one-wallet": evidence(chain=chain([payer(7, paid=5_000_000_000, transfers=1_000)])),
    "wash-to-itself": evidence(chain=chain([payer(SELLER, paid=5_000_000_000, transfers=1_000)])),
    "wash-round-trips": evidence(
        chain=chain(
            [
                payer(7, paid=900_000_000, returned=899_000_000, transfers=900),
                payer(8, paid=1_000_000),
            ]
        )
    ),
    "ten-payers": evidence(chain=chain([payer(i + 1, paid=3_000_000) for i in range(10)])),
    "ten-payers-shared-by-four": evidence(
        chain=chain([payer(i + 1, paid=3_000_000) for i in range(10)], hosts=4, indexed=WINDOW // 2)
    ),
}
