"""The commands of `tollgauge-guard` that read and resolve the journal."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

import httpx

from tollgauge_guard import defaults, purchase
from tollgauge_guard.entry import UNFINISHED, Entry, Outcome
from tollgauge_guard.errors import GuardError
from tollgauge_guard.journal import Journal
from tollgauge_guard.journal_file import MEMORY
from tollgauge_guard.statement import Delivery, likely, sign_statement
from tollgauge_guard.units import dollars

GOOD, BAD, FAILED = 0, 1, 2
PAYER_KEY: Final = "TOLLGAUGE_GUARD_PAYER_KEY"
_FATES: Final = {
    Outcome.OPEN: "It may still be taken, or the node could not tell. Try again later.",
    Outcome.IN_FLIGHT: "It may still be taken, or the node could not tell. Try again later.",
    Outcome.PAID_UNANSWERED: "It was taken. Ask the seller for the answer; --write-off lets the "
    "guard pay again.",
    Outcome.DEAD: "It was not taken and no longer can be. Its amount is free again.",
    Outcome.WRITTEN_OFF: "It stays spent, and the guard may pay for the same purchase again.",
    Outcome.LAPSED: "Its purchase has ended. It stays spent.",
    Outcome.ANSWERED: "It was answered.",
    Outcome.SETTLED: "It was answered, with a receipt.",
}
Commands = argparse._SubParsersAction  # noqa: SLF001  # its type has no other name


def add_commands(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands that read and resolve the journal."""
    _add_journal(commands)
    _add_resolve(commands)
    _add_report(commands)


def _add_journal(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("journal", help="the payments that were signed")
    command.add_argument("--unsettled", action="store_true", help="only those without an answer")
    command.add_argument("--json", action="store_true", help="print one JSON object a line")
    add_file(command)
    command.set_defaults(run=journal)
    command = commands.add_parser(
        "unresolved",
        help="the payments without an answer",
        description="Print the payments that were sent and not answered. No other payment is "
        "signed for the same purchase until they are resolved or their purchase has ended.",
    )
    command.add_argument("--json", action="store_true", help="print one JSON object a line")
    add_file(command)
    command.set_defaults(run=unresolved)


def _add_resolve(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "resolve",
        help="ask a node what became of a payment",
        description="Ask a JSON-RPC node whether a payment was taken, and write it down. A payment "
        "that is dead counts as spent no longer.",
    )
    command.add_argument("nonce", metavar="NONCE", help="the nonce of the payment")
    command.add_argument("--node", metavar="URL", help="a node of the payment's network")
    command.add_argument(
        "--write-off",
        action="store_true",
        help="let the guard sign another payment for the same purchase; this one stays spent",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    add_file(command)
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
    add_file(command)
    command.set_defaults(run=report)


def add_file(command: argparse.ArgumentParser) -> None:
    """Add the option that names the journal."""
    command.add_argument(
        "--journal",
        type=Path,
        default=defaults.journal_file(),
        metavar="FILE",
        help="the journal (default: %(default)s)",
    )


def journal(options: argparse.Namespace) -> int:
    """Print the payments that were signed."""
    kept = _journal(options)
    entries = kept.unsettled() if options.unsettled else kept.entries()
    for entry in entries:
        print(json.dumps(asdict(entry)) if options.json else _line(entry))
    if not entries and not options.json:
        print("No payment waits for an answer." if options.unsettled else "Nothing was paid yet.")
    return BAD if options.unsettled and entries else GOOD


def unresolved(options: argparse.Namespace) -> int:
    """Print the payments after which no other one is signed for the same purchase."""
    entries = _journal(options).unresolved()
    for entry in entries:
        print(json.dumps(asdict(entry)) if options.json else _line(entry))
    if not entries and not options.json:
        print("Every payment was answered, or its purchase has ended.")
    return BAD if entries else GOOD


def resolve(options: argparse.Namespace) -> int:
    """Ask a node what became of a payment, and write it down."""
    if options.node is None and not options.write_off:
        raise GuardError(
            "No node was named.",
            hint="Add --node URL to ask the chain, or --write-off to let the guard pay again.",
        )
    entry = purchase.resolve(
        _journal(options),
        options.nonce,
        node=options.node,
        write_off=options.write_off,
        now=int(time.time()),
    )
    text = f"{_line(entry)}\n    {_FATES[entry.outcome]}"
    print(json.dumps(asdict(entry)) if options.json else text)
    return BAD if entry.outcome in UNFINISHED else GOOD


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


def _journal(options: argparse.Namespace) -> Journal:
    """The journal that was named. Raises GuardError where there is none, for opening makes one."""
    path: Path = options.journal
    if path.exists():
        return Journal(path)
    if path == defaults.journal_file():
        return Journal(MEMORY)
    raise GuardError(f"There is no journal {path}.", hint="Name the one that your program writes.")


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
