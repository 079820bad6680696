"""The commands of `tollgauge-guard` that read the journal and resolve unanswered payments."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

import httpx

from tollgauge_guard import approval, defaults
from tollgauge_guard.bundle_source import NoBundle
from tollgauge_guard.errors import GuardError
from tollgauge_guard.guard import Guard
from tollgauge_guard.journal import Journal, Refusal
from tollgauge_guard.journal_file import MEMORY, is_postgres
from tollgauge_guard.nodes import NodeReader
from tollgauge_guard.payment import UNFINISHED, Payment, State
from tollgauge_guard.policy import Policy
from tollgauge_guard.statement import Delivery, guess_delivery, sign_statement
from tollgauge_guard.units import dollars

GOOD, BAD, FAILED = 0, 1, 2
BUNDLE: Final = "TOLLGAUGE_GUARD_BUNDLE"
KEY: Final = "TOLLGAUGE_GUARD_KEY"
PAYER_KEY: Final = "TOLLGAUGE_GUARD_PAYER_KEY"
APPROVER_KEY: Final = "TOLLGAUGE_GUARD_APPROVER_KEY"
_MEANINGS: Final = {
    State.SIGNED: "A call is about to send it.",
    State.IN_FLIGHT: "A call waits for its answer.",
    State.OPEN: "It has no answer, and may still be taken. Make the same call again, or resolve "
    "it later.",
    State.PAID_UNANSWERED: "It was taken and not answered. Send the evidence (`show`) to the "
    "seller; `pay-again` lets the guard pay again.",
    State.DEAD: "It was not taken and cannot be taken any more. Its amount is free again.",
    State.WRITTEN_OFF: "It stays spent, and the guard may pay for the same purchase again.",
    State.LAPSED: "Its purchase has ended. It stays spent.",
    State.DELIVERED: "It was answered.",
}
_HIDDEN: Final = frozenset({"payload", "evidence", "owner"})
Commands = argparse._SubParsersAction  # noqa: SLF001  # its type has no other name


def add_commands(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands that read and resolve the journal."""
    _add_journal(commands)
    _add_unresolved(commands)
    _add_approve(commands)
    _add_report(commands)


def _add_journal(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("journal", help="the payments that were signed")
    command.add_argument("--refusals", action="store_true", help="the refusals instead")
    command.add_argument("--json", action="store_true", help="print one JSON object per line")
    add_file(command)
    command.set_defaults(run=journal)
    command = commands.add_parser("export", help="payments and refusals as CSV or JSON lines")
    form = command.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="CSV")
    form.add_argument("--jsonl", action="store_true", help="one JSON object per line (default)")
    command.add_argument("--refusals", action="store_true", help="the refusals instead")
    add_file(command)
    command.set_defaults(run=export)


def _add_unresolved(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "unresolved",
        help="the payments without an answer, and what to do about them",
        description="List the payments that were sent and not answered, or act on one. No other "
        "payment is signed for the same purchase until it is resolved or the purchase has ended.",
    )
    command.add_argument(
        "action",
        nargs="?",
        choices=["list", "show", "resolve", "retry", "pay-again", "write-off"],
        default="list",
        help="show: print the evidence for the seller; resolve: read the chain; retry: send it "
        "again to --url; pay-again: let the guard pay again; write-off: close it",
    )
    command.add_argument("handle", nargs="?", metavar="HANDLE", help="of the payment, or its nonce")
    command.add_argument(
        "--node",
        action="append",
        metavar="URL",
        help="a node of the payment's network; with several, all must show it dead",
    )
    add_request(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    add_file(command)
    command.set_defaults(run=list_unresolved)


def _add_approve(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "approve",
        help="answer the questions that wait for the approver",
        description=f"Ask about each waiting payment, and sign the answers with the key in "
        f"{APPROVER_KEY}, which must not be in the agent's environment.",
    )
    command.add_argument("--new-key", action="store_true", help="print a new pair of keys")
    command.add_argument("--list", action="store_true", help="only list the questions")
    add_file(command)
    command.set_defaults(run=approve)


def _add_report(commands: Commands[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "report",
        help="a signed statement about the outcome of a payment",
        description=f"Print a statement (EIP-712) signed with the key in {PAYER_KEY}.",
    )
    command.add_argument("payment", metavar="PAYMENT", help="its handle or number in the journal")
    command.add_argument(
        "--outcome", choices=[*Delivery], help="what you got. Default: as journalled"
    )
    command.add_argument("--send", metavar="URL", help="send it there, such as …/v1/outcomes")
    add_file(command)
    command.set_defaults(run=report)


def add_request(command: argparse.ArgumentParser) -> None:
    """Add the options that repeat a request."""
    command.add_argument("--url", metavar="URL", help="for retry: the URL of the call")
    command.add_argument("--method", default="GET", help="default: %(default)s")
    command.add_argument("--data", metavar="TEXT", help="the body")


def add_file(command: argparse.ArgumentParser) -> None:
    """Add the option that names the journal."""
    command.add_argument(
        "--journal",
        type=_read_place,
        default=defaults.journal_file(),
        metavar="FILE",
        help="the journal, a file or postgresql://… (default: %(default)s)",
    )


def journal(options: argparse.Namespace) -> int:
    """Print the payments that were signed, or the refusals."""
    kept = _journal(options)
    if options.refusals:
        for refusal in kept.refusals():
            at = _time(refusal.at)
            text = f"{at}  {refusal.code}  {refusal.resource}\n    {refusal.reason}"
            print(json.dumps(asdict(refusal)) if options.json else text)
        return GOOD
    payments = kept.payments()
    for payment in payments:
        print(json.dumps(_row(payment)) if options.json else _line(payment))
    if not payments and not options.json:
        print("Nothing was paid yet.")
    return GOOD


def export(options: argparse.Namespace) -> int:
    """Print payments or refusals for other programs."""
    kept = _journal(options)
    kind: type[Payment | Refusal] = Refusal if options.refusals else Payment
    found = kept.refusals() if options.refusals else kept.payments()
    table = [_row(one) for one in found]
    if options.csv:
        names = [one.name for one in fields(kind) if one.name not in _HIDDEN]
        writer = csv.DictWriter(sys.stdout, names)
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in table)
    else:
        for row in table:
            print(json.dumps(row))
    return GOOD


def list_unresolved(options: argparse.Namespace) -> int:
    """List the payments without an answer, or act on one of them."""
    kept = _journal(options)
    if options.action == "list":
        payments = kept.find_unresolved()
        for payment in payments:
            print(json.dumps(_row(payment)) if options.json else _line(payment))
        if not payments and not options.json:
            print("Every payment was answered, or its purchase has ended.")
        return BAD if payments else GOOD
    if options.handle is None:
        raise GuardError(f"`{options.action}` needs the handle of a payment.")
    found = kept.find(options.handle)
    if found is None:
        raise GuardError(
            f"The journal has no payment {options.handle}.",
            hint="`tollgauge-guard unresolved` lists the payments without an answer.",
        )
    if options.action == "show":
        print(json.dumps(_evidence(found), indent=None if options.json else 2))
        return GOOD
    if options.action == "resolve" and not options.node:
        raise GuardError("No node was named.", hint="Add --node URL.")
    if options.action == "retry":
        return _retry(found, options)
    nodes = NodeReader({found.network: options.node} if options.node else {})
    guard = Guard(bundles=NoBundle(), policy=Policy(), journal=kept, nodes=nodes)
    is_closed = options.action in ("pay-again", "write-off")
    payment = guard.resolve(found.handle, write_off=is_closed)
    text = f"{_line(payment)}\n    {_MEANINGS[payment.state]}"
    print(json.dumps(_row(payment)) if options.json else text)
    return BAD if payment.state in UNFINISHED else GOOD


def _retry(payment: Payment, options: argparse.Namespace) -> int:
    """Send a payment again; the bundle and its key come from the environment."""
    from tollgauge_guard import cli_quote, open_guard

    bundle, key = os.environ.get(BUNDLE, ""), os.environ.get(KEY, "")
    if options.url is None or not bundle or not key:
        raise GuardError(f"`retry` needs --url, and {BUNDLE} and {KEY} in the environment.")
    guard = open_guard(bundle=bundle, key=key, journal=options.journal)
    return cli_quote.retry(guard, payment, options)


def approve(options: argparse.Namespace) -> int:
    """Answer the questions that wait."""
    if options.new_key:
        secret, public = approval.new_key()
        print(f"{APPROVER_KEY}={secret}\napprover={public}")
        return GOOD
    kept = _journal(options)
    questions = approval.list_questions(kept.file, int(time.time()))
    if not questions:
        print("No question waits.")
        return GOOD
    secret = os.environ.get(APPROVER_KEY, "")
    if not secret and not options.list:
        raise GuardError(
            f"{APPROVER_KEY} is not set.", hint="`tollgauge-guard approve --new-key` prints one."
        )
    for question in questions:
        print(question.prompt)
        if not options.list:
            is_allowed = input("Allow? [y/N] ").strip().lower() in ("y", "yes")
            approval.answer_question(kept.file, question, allow=is_allowed, secret=secret)
    return GOOD


def report(options: argparse.Namespace) -> int:
    """Print a signed statement about a payment, and send it with `--send`."""
    kept = _journal(options)
    is_number = options.payment.isdecimal()
    payment = kept.payment(int(options.payment)) if is_number else kept.find(options.payment)
    if payment is None or payment.nonce is None:
        raise GuardError(
            f"The journal has no payment {options.payment}.",
            hint="`tollgauge-guard journal` lists them.",
        )
    key = os.environ.get(PAYER_KEY, "")
    if not key:
        raise GuardError(
            f"{PAYER_KEY} is not set.", hint="It contains the key of the account that paid."
        )
    outcome = Delivery(options.outcome) if options.outcome else guess_delivery(payment)
    document = sign_statement(payment, outcome, key).document()
    print(json.dumps(document))
    if not options.send:
        return GOOD
    print(f"This publishes that {payment.payer} bought at {payment.resource}.", file=sys.stderr)
    return _send(options.send, document)


def _journal(options: argparse.Namespace) -> Journal:
    """Open the journal that was named; a missing file is not created. Raises GuardError."""
    path: Path | str = options.journal
    if isinstance(path, str):
        return Journal(path)
    if path.exists():
        return Journal(path)
    if path == defaults.journal_file():
        return Journal(MEMORY)
    raise GuardError(f"There is no journal {path}.", hint="Name the one that your program writes.")


def _read_place(text: str) -> Path | str:
    return text if is_postgres(text) else Path(text)


def _row(kept: Payment | Refusal) -> dict[str, Any]:
    return {name: value for name, value in asdict(kept).items() if name not in _HIDDEN}


def _evidence(payment: Payment) -> dict[str, object]:
    """Return the data by which a seller finds a payment. Nothing in it lets anyone take money."""
    return {
        "resource": payment.resource,
        "requestDigest": payment.purchase,
        "state": payment.state,
        "transaction": payment.settlement,
        "offer": {
            "scheme": payment.scheme,
            "network": payment.network,
            "asset": payment.asset,
            "amount": str(payment.amount),
            "payTo": payment.pay_to,
        },
        "payer": payment.payer,
        "nonce": payment.nonce,
        "signedAt": payment.at,
        "validBefore": payment.valid_before,
        "foundUsedAt": payment.found_at,
        "lastStatus": payment.status,
    }


def _line(payment: Payment) -> str:
    return (
        f"{payment.handle}  {_time(payment.at)}  {dollars(payment.exposure)}  {payment.state}  "
        f"{payment.resource}\n    to {payment.pay_to} on {payment.network}, payer {payment.payer}, "
        f"nonce {payment.nonce}"
    )


def _cell(value: object) -> object:
    """Return a value for a spreadsheet: a text is never read as a formula."""
    is_formula = isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{value}" if is_formula else value


def _time(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at))


def _send(url: str, document: dict[str, object]) -> int:
    try:
        answer = httpx.post(url, json=document, timeout=30)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise GuardError(f"{url} does not answer ({type(error).__name__}).") from error
    print(f"{url} answered {answer.status_code}.", file=sys.stderr)
    return GOOD if answer.is_success else BAD
