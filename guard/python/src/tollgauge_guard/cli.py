"""The command `tollgauge-guard`. Exit codes: 0 good, 1 what was examined is bad, 2 it failed."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from importlib import metadata
from pathlib import Path
from typing import Final

import httpx

from tollgauge_guard import defaults, open_guard
from tollgauge_guard.decision import Allow, Decision, Spent, decide
from tollgauge_guard.errors import GuardError
from tollgauge_guard.journal import Entry, Journal
from tollgauge_guard.journal_file import MEMORY
from tollgauge_guard.offer import read_offer
from tollgauge_guard.policy import DOLLAR, GRADES, Policy, Unknown
from tollgauge_guard.record import Record
from tollgauge_guard.resource import parse
from tollgauge_guard.statement import Delivery, likely, sign_statement
from tollgauge_guard.units import USDC, dollars

GOOD, BAD, FAILED = 0, 1, 2
BUNDLE: Final = "TOLLGAUGE_GUARD_BUNDLE"
KEY: Final = "TOLLGAUGE_GUARD_KEY"
PAYER_KEY: Final = "TOLLGAUGE_GUARD_PAYER_KEY"
BASE: Final = "eip155:8453"
_WHICH_BUNDLE: Final = "It is the address of a service's /trust/bundle, or a file."
_WHICH_KEY: Final = (
    "It is the fingerprint of the key that signs the bundle, from the service's operator "
    "(`kid` in /.well-known/jwks.json)."
)
_NOBODY: Final = "0x" + "0" * 39 + "1"
"""A payee for an offer of which none was given."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; `arguments` are those of the process unless given. Returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except GuardError as error:
        print(f"tollgauge-guard: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return FAILED


def check(options: argparse.Namespace) -> int:
    """Print what is known of a URL, and whether an offer of it would be paid."""
    bundle = open_guard(bundle=_bundle(options), key=_key(options), journal=":memory:").bundles
    current = bundle.current()
    if current is None:
        raise GuardError(
            f"No bundle could be had from {_bundle(options)}.",
            hint="Nothing would be paid now, unless the policy fails open.",
        )
    resource = parse(options.url)
    record = current.record(resource)
    decision = decide(
        record,
        read_offer(_offer(options, record), options.url),
        options.url,
        _policy(options),
        int(time.time()),
        bundle_as_of=current.as_of,
        spent=Spent(),
    )
    if options.json:
        print(json.dumps(_checked(resource.url, record, decision)))
    else:
        _print_checked(resource.url, record, decision, options)
    return GOOD if isinstance(decision, Allow) else BAD


def journal(options: argparse.Namespace) -> int:
    """Print the payments that were signed."""
    kept = _journal(options)
    entries = kept.unsettled() if options.unsettled else kept.entries()
    for entry in entries:
        print(json.dumps(asdict(entry)) if options.json else _line(entry))
    if not entries and not options.json:
        print("No payment waits for an answer." if options.unsettled else "Nothing was paid yet.")
    return BAD if options.unsettled and entries else GOOD


def resolve(options: argparse.Namespace) -> int:
    """Write down what the chain shows of a payment."""
    _journal(options).resolve(options.entry, is_taken=options.fate == "taken")
    return GOOD


def report(options: argparse.Namespace) -> int:
    """Print a signed statement about a payment, and send it where that is asked."""
    entry = _journal(options).entry(options.entry)
    if entry is None:
        raise GuardError(
            f"The journal has no payment {options.entry}.",
            hint="`tollgauge-guard journal` lists them.",
        )
    key = os.environ.get(PAYER_KEY, "")
    if not key:
        raise GuardError(
            f"{PAYER_KEY} is not set.", hint="It holds the key of the account that paid."
        )
    outcome = Delivery(options.outcome) if options.outcome else likely(entry)
    document = sign_statement(entry, outcome, key).document()
    print(json.dumps(document))
    return _send(options.send, document) if options.send else GOOD


def proxy(options: argparse.Namespace) -> int:
    """Run an MCP server behind the guard."""
    from tollgauge_guard import mcp_proxy

    guard = open_guard(
        bundle=_bundle(options),
        key=_key(options),
        policy=_policy(options),
        journal=options.journal,
    )
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise GuardError("No server was named.", hint="tollgauge-guard proxy -- COMMAND ARGUMENT…")
    return asyncio.run(mcp_proxy.run(guard, command, options.url))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tollgauge-guard",
        description="Refuse bad x402 payments before they are signed.",
        epilog="Exit codes: 0 good, 1 what was examined is bad, 2 the command failed.",
    )
    version = f"%(prog)s {metadata.version('tollgauge-guard')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_check(commands)
    _add_journal(commands)
    _add_report(commands)
    _add_proxy(commands)
    return parser


Commands = argparse._SubParsersAction  # noqa: SLF001  # its type has no other name


def _add_check(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "check",
        help="what is known of a URL, and whether it would be paid",
        description="Print what the bundle knows of a URL, and whether an offer of it would be "
        "paid. What you do not give is taken from the bundle. The URL is not asked.",
    )
    command.add_argument("url", metavar="URL")
    command.add_argument("--pay-to", metavar="ADDRESS", help="whom the offer asks to be paid to")
    command.add_argument("--amount", metavar="UNITS", help="its amount in atomic units of USDC")
    command.add_argument("--network", metavar="CAIP-2", help="its network, such as eip155:8453")
    _add_policy(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=check)


def _add_journal(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("journal", help="the payments that were signed")
    command.add_argument("--unsettled", action="store_true", help="only those without an answer")
    command.add_argument("--json", action="store_true", help="print one JSON object a line")
    _add_file(command)
    command.set_defaults(run=journal)
    command = commands.add_parser(
        "resolve",
        help="say what the chain shows of a payment",
        description="A payment that was not taken and has expired counts as spent no longer.",
    )
    command.add_argument("entry", type=int, metavar="ENTRY", help="its number in the journal")
    command.add_argument("fate", choices=("taken", "not-taken"))
    _add_file(command)
    command.set_defaults(run=resolve)


def _add_report(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "report",
        help="a signed statement about what a payment brought",
        description=f"Print a statement (EIP-712) signed with the key in {PAYER_KEY}.",
    )
    command.add_argument("entry", type=int, metavar="ENTRY", help="its number in the journal")
    command.add_argument("--outcome", choices=[*Delivery], help="what you got; else as journalled")
    command.add_argument("--send", metavar="URL", help="send it there, such as …/v1/outcomes")
    _add_file(command)
    command.set_defaults(run=report)


def _add_proxy(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "proxy",
        help="guard the paid tools of an MCP server on stdio",
        description="Start an MCP server and stand before it: payments that the guard refuses are "
        "not passed on.",
    )
    command.add_argument("--url", help="the server's address, by which the bundle may know it")
    _add_policy(command)
    _add_file(command)
    command.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    command.set_defaults(run=proxy)


def _add_file(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--journal",
        type=Path,
        default=defaults.journal_file(),
        metavar="FILE",
        help="the journal (default: %(default)s)",
    )


def _add_policy(command: argparse.ArgumentParser) -> None:
    usual = Policy()
    command.add_argument("--bundle", metavar="URL|FILE", help=f"the bundle (default: {BUNDLE})")
    command.add_argument("--key", help=f"its public JWK or fingerprint (default: {KEY})")
    for name, meaning in (
        ("max_call", "most for one payment"),
        ("max_host_day", "most for a host on a day"),
        ("max_day", "most on a day"),
        ("unknown_max", "most for an endpoint that is not known"),
    ):
        command.add_argument(
            f"--{name.replace('_', '-')}",
            type=_micro_usd,
            default=getattr(usual, name),
            metavar="USD",
            help=f"{meaning} (default: {dollars(getattr(usual, name))})",
        )
    command.add_argument("--unknown", choices=[*Unknown], default=usual.unknown)
    command.add_argument("--min-grade", choices=[*GRADES], default=usual.min_grade)
    command.add_argument(
        "--fail-open", action="store_true", help="without a bundle, treat all as unknown"
    )


def _journal(options: argparse.Namespace) -> Journal:
    """The journal that was named. Raises GuardError where there is none, for opening makes one."""
    path: Path = options.journal
    if path.exists():
        return Journal(path)
    if path == defaults.journal_file():
        return Journal(MEMORY)
    raise GuardError(f"There is no journal {path}.", hint="Name the one that your program writes.")


def _policy(options: argparse.Namespace) -> Policy:
    return Policy(
        max_call=options.max_call,
        max_host_day=options.max_host_day,
        max_day=options.max_day,
        unknown_max=options.unknown_max,
        unknown=Unknown(options.unknown),
        min_grade=options.min_grade,
        fail_open=options.fail_open,
    )


def _micro_usd(text: str) -> int:
    try:
        value = Decimal(text.removeprefix("$")) * DOLLAR
    except InvalidOperation as error:
        raise argparse.ArgumentTypeError(f"{text} is no number of dollars") from error
    if not value.is_finite() or value != int(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text} has more than six decimals, or is negative")
    return int(value)


def _bundle(options: argparse.Namespace) -> str:
    bundle = options.bundle or os.environ.get(BUNDLE, "")
    if not bundle:
        raise GuardError("No bundle was named.", hint=f"Use --bundle or {BUNDLE}. {_WHICH_BUNDLE}")
    return str(bundle)


def _key(options: argparse.Namespace) -> str:
    key = options.key or os.environ.get(KEY, "")
    if not key:
        raise GuardError("No key was named.", hint=f"Use --key or {KEY}. {_WHICH_KEY}")
    return str(key)


def _offer(options: argparse.Namespace, record: Record | None) -> dict[str, object]:
    """The offer that was given; what is missing is what the bundle knows."""
    network = options.network or (record and record.network) or BASE
    amount = options.amount or str((record and record.amount) or 1)
    known = record.payees[0].address if record and record.payees else _NOBODY
    asset = next((asset.address for asset in USDC if asset.network == network), None)
    return {
        "scheme": "exact",
        "network": network,
        "asset": asset,
        "amount": amount,
        "payTo": options.pay_to or known,
        "maxTimeoutSeconds": 60,
    }


def _checked(url: str, record: Record | None, decision: Decision) -> dict[str, object]:
    return {
        "resource": url,
        "decision": type(decision).__name__.lower(),
        "code": None if isinstance(decision, Allow) else decision.code,
        "reason": None if isinstance(decision, Allow) else decision.reason,
        "record": None if record is None else asdict(record),
    }


def _print_checked(
    url: str, record: Record | None, decision: Decision, options: argparse.Namespace
) -> None:
    if isinstance(decision, Allow):
        print(f"allow  {url}")
    else:
        print(
            f"{type(decision).__name__.lower()}  {url}\n       {decision.code}: {decision.reason}"
        )
    if record is None:
        is_open = isinstance(decision, Allow) and not options.amount
        up_to = f": up to {dollars(options.unknown_max)} would be paid" if is_open else ""
        print(f"       The bundle does not know it{up_to}.")
        return
    grade = f"grade {record.grade}, " if record.grade else ""
    price = "no known price" if record.amount is None else f"price {dollars(record.amount)}"
    print(f"       {record.recommendation}: {grade}{price} on {record.network or 'no network'}")
    for payee in record.payees:
        since = time.strftime("%Y-%m-%d", time.gmtime(payee.since))
        print(f"       paid to {payee.address} since {since}")


def _line(entry: Entry) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry.at))
    return (
        f"{entry.id}  {at}Z  {dollars(entry.micro_usd)}  {entry.outcome}  {entry.resource}\n"
        f"    to {entry.pay_to} on {entry.network}, payer {entry.payer}, nonce {entry.nonce}"
    )


def _send(url: str, document: dict[str, object]) -> int:
    try:
        answer = httpx.post(url, json=document, timeout=30)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise GuardError(f"{url} does not answer ({type(error).__name__}).") from error
    print(f"{url} answered {answer.status_code}.", file=sys.stderr)
    return GOOD if answer.is_success else BAD


if __name__ == "__main__":
    sys.exit(main())
