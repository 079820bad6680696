"""The command `tollgauge-guard`. Exit codes: 0 good, 1 the examined thing is bad, 2 failed."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from importlib import metadata
from typing import Any, Final

from tollgauge_guard import cli_journal, cli_quote, open_guard
from tollgauge_guard.cli_gateway import TOKEN, listen_address, run_gateway
from tollgauge_guard.cli_journal import BAD, BUNDLE, FAILED, GOOD, KEY, Commands
from tollgauge_guard.decision import Allow, Decision
from tollgauge_guard.errors import GuardError
from tollgauge_guard.guard import Guard
from tollgauge_guard.journal_file import MEMORY
from tollgauge_guard.offer import read_offer
from tollgauge_guard.policy import DOLLAR, GRADES, Policy, Unknown
from tollgauge_guard.record import Record
from tollgauge_guard.resource import parse
from tollgauge_guard.units import USDC, dollars

BASE: Final = "eip155:8453"
_WHICH_BUNDLE: Final = "It is the address of a service's /trust/bundle, or a file."
_WHICH_KEY: Final = (
    "It is the fingerprint of the key that signs the bundle, from the service's operator "
    "(`kid` in /.well-known/jwks.json)."
)
_PLACEHOLDER: Final = "0x" + "0" * 39 + "1"
"""The payTo of an offer for which none was given."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default with the arguments of the process. Returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except GuardError as error:
        print(f"tollgauge-guard: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return FAILED


def check(options: argparse.Namespace) -> int:
    """Print the bundle's record of a URL, and whether an offer would be paid."""
    guard = _guard(options, journal=MEMORY)
    current = guard.bundles.current()
    if current is None:
        raise GuardError(
            f"No bundle could be loaded from {_bundle(options)}.",
            hint="Nothing would be paid now, unless the policy fails open.",
        )
    resource = parse(options.url)
    record = current.record(resource)
    offer = read_offer(_offer(options, record), options.url)
    decision = cli_quote.decide_now(guard, options.url, offer)
    if options.json:
        print(json.dumps(_build_result(resource.url, record, decision)))
    else:
        _print_checked(resource.url, record, decision, options)
    return GOOD if isinstance(decision, Allow) else BAD


def quote(options: argparse.Namespace) -> int:
    """Fetch a 402 without paying, and print the decision about each offer."""
    return cli_quote.quote(_guard(options, journal=MEMORY), options)


def try_out(_options: argparse.Namespace) -> int:
    """Pay a good seller and refuse a bad one, on this machine."""
    from tollgauge_guard.cli_try import run  # needs the extra `evm`

    return run()


def proxy(options: argparse.Namespace) -> int:
    """Run an MCP server behind the guard."""
    from tollgauge_guard import mcp_proxy

    guard = _guard(options, journal=options.journal, nodes=dict(options.node or ()))
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise GuardError("No server was named.", hint="tollgauge-guard proxy -- COMMAND ARGUMENT…")
    return asyncio.run(mcp_proxy.run(guard, command, options.url))


def gateway(options: argparse.Namespace) -> int:
    """Pay for programs on this machine."""
    guard = _guard(
        options,
        journal=options.journal,
        nodes=dict(options.node or ()),
        approver=options.approver,
    )
    return run_gateway(guard, options.listen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tollgauge-guard",
        description="Refuse bad x402 payments before they are signed.",
        epilog="Exit codes: 0 good, 1 the examined thing is bad, 2 the command failed.",
    )
    version = f"%(prog)s {metadata.version('tollgauge-guard')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_try(commands)
    _add_check(commands)
    _add_quote(commands)
    cli_journal.add_commands(commands)
    _add_proxy(commands)
    _add_gateway(commands)
    return parser


def _add_try(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "try",
        help="a purchase and a refusal on this machine, without a service",
        description="Start one good and one bad seller on 127.0.0.1, and pay both with a guarded "
        "client and a throw-away wallet. No chain and no service are involved.",
    )
    command.set_defaults(run=try_out)


def _add_quote(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "quote",
        help="fetch a 402 without paying, and print the decision",
        description="Request a URL without a payment, and print whether each offer of its 402 "
        "would be paid.",
    )
    command.add_argument("url", metavar="URL")
    command.add_argument("--method", default="GET", help="default: %(default)s")
    command.add_argument("--data", metavar="TEXT", help="the body")
    _add_policy(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=quote)


def _add_check(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "check",
        help="the bundle's record of a URL, and whether it would be paid",
        description="Print the bundle's record of a URL, and whether an offer would be paid. "
        "Values that you do not give come from the bundle. The URL is not requested.",
    )
    command.add_argument("url", metavar="URL")
    command.add_argument("--pay-to", metavar="ADDRESS", help="the offer's payTo")
    command.add_argument("--amount", metavar="UNITS", help="its amount in atomic units of USDC")
    command.add_argument("--network", metavar="CAIP-2", help="its network, such as eip155:8453")
    _add_policy(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=check)


def _add_proxy(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "proxy",
        help="guard the paid tools of an MCP server on stdio",
        description="Start an MCP server and pass its messages on, except payments that the guard "
        "refuses.",
    )
    command.add_argument("--url", help="the server's address in the bundle")
    _add_nodes(command)
    _add_policy(command)
    cli_journal.add_file(command)
    command.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    command.set_defaults(run=proxy)


def _add_gateway(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "gateway",
        help="pay for programs on this machine that cannot pay themselves",
        description="Serve http://127.0.0.1:PORT/https/HOST/PATH, which requests "
        "https://HOST/PATH and pays for it if the guard allows that. Programs send the bearer "
        f"token of {TOKEN} (default: a new one, which is printed). The wallet is the private key "
        f"in {cli_journal.PAYER_KEY}.",
    )
    command.add_argument(
        "--listen",
        type=listen_address,
        default=("127.0.0.1", 8403),
        metavar="HOST:PORT",
        help="a loopback address (default: 127.0.0.1:8403)",
    )
    command.add_argument(
        "--approver", metavar="KEY", help="public key of the approver; questions wait in a queue"
    )
    _add_nodes(command)
    _add_policy(command)
    cli_journal.add_file(command)
    command.set_defaults(run=gateway)


def _add_nodes(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--node",
        action="append",
        type=_node,
        metavar="CAIP-2=URL",
        help="a JSON-RPC node of a network, which shows whether a payment was used",
    )


def _add_policy(command: argparse.ArgumentParser) -> None:
    usual = Policy()
    command.add_argument("--bundle", metavar="URL|FILE", help=f"the bundle (default: {BUNDLE})")
    command.add_argument("--key", help=f"its public JWK or fingerprint (default: {KEY})")
    for name, meaning in (
        ("max_call", "limit of one payment"),
        ("max_host_day", "limit per host within 24 hours"),
        ("max_day", "limit within 24 hours"),
        ("unknown_max", "limit for an unknown endpoint"),
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


def _guard(options: argparse.Namespace, **settings: Any) -> Guard:
    return open_guard(
        bundle=_bundle(options), key=_key(options), policy=_policy(options), **settings
    )


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
        raise argparse.ArgumentTypeError(f"{text} is not a number of dollars") from error
    if not value.is_finite() or value != int(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text} has more than six decimals, or is negative")
    return int(value)


def _node(text: str) -> tuple[str, str]:
    network, equals, url = text.partition("=")
    if not equals or not url.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(
            f"{text} is not a network and a URL: eip155:8453=https://…"
        )
    return network, url


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
    """Return the offer of the options; missing values come from the bundle."""
    latest = record.offers[0] if record and record.offers else None
    network = options.network or (latest and latest.network) or BASE
    amount = options.amount or str((latest and latest.amount) or 1)
    known = latest.pay_to if latest else _PLACEHOLDER
    asset = next((asset.address for asset in USDC if asset.network == network), None)
    return {
        "scheme": "exact",
        "network": network,
        "asset": asset,
        "amount": amount,
        "payTo": options.pay_to or known,
        "maxTimeoutSeconds": 60,
    }


def _build_result(url: str, record: Record | None, decision: Decision) -> dict[str, object]:
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
        print(f"       The bundle has no record of it{up_to}.")
        return
    grade = f"grade {record.grade}, " if record.grade else ""
    print(f"       {record.recommendation}: {grade}offers of 30 days:")
    for offer in record.offers:
        price = "an unknown price" if offer.amount is None else dollars(offer.amount)
        print(f"       {offer.scheme} on {offer.network}: {price} to {offer.pay_to}")


if __name__ == "__main__":
    sys.exit(main())
