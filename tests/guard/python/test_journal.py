"""The journal: budgets hold across threads and processes, and nothing that was signed is lost."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_server import command
from tests.support.guard_payments import (
    PAYER,
    authorization,
    exposure,
    pay,
    purchase,
    start_payer,
    terms,
)
from tests.support.postgres import Postgres

from tollgauge_guard import journal_file
from tollgauge_guard.budget import DAY_S
from tollgauge_guard.codes import Code
from tollgauge_guard.decision import Refuse
from tollgauge_guard.journal import Journal, Refusal, Reserved
from tollgauge_guard.journal_file import MEMORY, JournalError, is_alive
from tollgauge_guard.journal_rows import KEEP_REFUSALS_S, KEEP_S
from tollgauge_guard.payment import TRANSITIONS, Event, Payment, State
from tollgauge_guard.policy import Policy
from tollgauge_guard.purchase_key import account_id

NOW = 1_767_225_600 + 3_600
POLICY = Policy()
OTHER_PAYER = "0x" + "7e" * 20


class Storage:
    """A store of a program, whose guards share one connection."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect(MEMORY, isolation_level=None, check_same_thread=False)
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            yield self._rows

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._rows.execute("BEGIN")
            try:
                yield self._rows
            except BaseException:
                self._rows.rollback()
                raise
            self._rows.commit()

    def close(self) -> None:
        self._rows.close()


PLACES = ("file", MEMORY, "store", pytest.param("postgres", marks=pytest.mark.postgres))


@pytest.fixture(params=PLACES)
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    places: dict[str, Any] = {"file": tmp_path / "journal.sqlite", "store": Storage()}
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        places["postgres"] = server.new_schema()
    opened = Journal(places.get(request.param, MEMORY))
    yield opened
    opened.close()


def insert_paid(journal: Journal, number: int, now: int = NOW, **options: Any) -> Payment:
    payment = pay(journal, number, POLICY, now, **options)
    assert isinstance(payment, Payment)
    return payment


def state_of(journal: Journal, payment: Payment) -> State | None:
    found = journal.payment(payment.id)
    return None if found is None else found.state


def day(journal: Journal, now: int = NOW) -> int:
    return journal.sum_spent(exposure(now)).day


def test_reserved_exposure_counts_until_nothing_was_signed(journal: Journal) -> None:
    reserved = journal.reserve(purchase(), terms(), PAYER, POLICY, NOW)
    assert isinstance(reserved, Reserved)
    assert day(journal) == 5_000
    assert journal.change(reserved.id, Event.NOT_SIGNED, NOW)
    assert day(journal) == 0
    assert journal.payment(reserved.id) is None


def test_no_command_reads_a_handle_as_an_option() -> None:
    reserved = Journal().reserve(purchase(), terms(), PAYER, POLICY, NOW)
    assert isinstance(reserved, Reserved)
    assert re.fullmatch("[0-9a-f]{32}", reserved.handle)


def test_slow_signer_does_not_exceed_a_budget(journal: Journal) -> None:
    policy = Policy(max_day=500_000)
    slow = journal.reserve(purchase(), terms(400_000), PAYER, policy, NOW)
    assert isinstance(slow, Reserved)
    later = NOW + 900
    other = journal.reserve(purchase(path="/b"), terms(400_000), PAYER, policy, later)
    assert isinstance(other, Refuse)
    assert other.code == Code.OVER_DAY_BUDGET
    journal.sign(slow.id, authorization(1, later + 60, 400_000), "header", later)
    assert day(journal, later) == 400_000


def test_reservation_of_a_dead_process_is_given_back_before_a_budget_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, policy = Journal(tmp_path / "journal.sqlite"), Policy(max_day=5_000)
    with monkeypatch.context() as before:
        before.setattr(journal_file, "_START", "dead")
        assert isinstance(journal.reserve(purchase(), terms(), PAYER, policy, NOW), Reserved)
    again = journal.reserve(purchase(path="/b"), terms(), PAYER, policy, NOW)
    assert isinstance(again, Reserved)


def test_payment_of_an_earlier_process_with_the_same_number_is_not_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container every start has the same process ID."""
    journal = Journal(tmp_path / "journal.sqlite")
    with monkeypatch.context() as before:
        before.setattr(journal_file, "_START", "dead")
        left = insert_paid(journal, 1)
    assert not is_alive(left.owner)
    assert journal.change(left.id, Event.PROCESS_DIED, NOW, expected=State.IN_FLIGHT)
    assert state_of(journal, left) is State.OPEN


def test_payment_of_a_process_that_died_before_sending_it_is_unresolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    with monkeypatch.context() as before:
        before.setattr(journal_file, "_START", "dead")
        reserved = journal.reserve(purchase(), terms(), PAYER, POLICY, NOW)
        assert isinstance(reserved, Reserved)
        journal.sign(reserved.id, authorization(1, NOW + 60), "header", NOW)
    (found,) = journal.find_unresolved()
    assert (found.id, found.state) == (reserved.id, State.SIGNED)


def test_every_pair_outside_the_table_changes_nothing(journal: Journal) -> None:
    payment = insert_paid(journal, 1)
    for state in State:
        with journal.file.transaction() as rows:
            rows.execute("UPDATE payments SET state = ?", (state,))
        for event in Event:
            if (state, event) not in TRANSITIONS:
                assert not journal.change(payment.id, event, NOW)
                assert state_of(journal, payment) is state


def test_transition_requires_the_state_that_was_read(journal: Journal) -> None:
    payment = insert_paid(journal, 1)
    assert not journal.change(payment.id, Event.ANSWER, NOW, expected=State.OPEN)
    assert state_of(journal, payment) is State.IN_FLIGHT


def test_open_payment_counts_until_it_is_dead(journal: Journal) -> None:
    payment = insert_paid(journal, 1)
    journal.change(payment.id, Event.NO_ANSWER, NOW)
    assert day(journal, NOW + 3_600) == 5_000
    assert [found.id for found in journal.find_unresolved()] == [payment.id]
    assert journal.change(payment.id, Event.CHAIN_DEAD, NOW + 3_600)
    assert day(journal, NOW + 3_600) == 0
    assert journal.find_unresolved() == ()


@pytest.mark.parametrize("event", [Event.CHAIN_USED, Event.WINDOW_OVER, Event.WRITE_OFF])
def test_payment_that_is_not_dead_stays_spent(journal: Journal, event: Event) -> None:
    payment = insert_paid(journal, 1)
    journal.change(payment.id, Event.NO_ANSWER, NOW)
    assert journal.change(payment.id, event, NOW)
    spent = journal.sum_spent(exposure(NOW))
    assert (spent.day, spent.lost, spent.losses) == (5_000, 5_000, 1)


def test_settled_amount_that_the_chain_shows_replaces_the_ceiling(journal: Journal) -> None:
    payment = insert_paid(journal, 1)
    journal.change(payment.id, Event.NO_ANSWER, NOW)
    journal.change(payment.id, Event.CHAIN_USED, NOW, settled=1_200)
    assert day(journal) == 1_200
    journal.change(payment.id, Event.CHAIN_USED, NOW, settled=9_000)
    assert day(journal) == 1_200


def test_no_second_payment_of_a_purchase_is_reserved_before_the_first_has_ended(
    journal: Journal,
) -> None:
    first = insert_paid(journal, 1)
    assert pay(journal, 2, POLICY, NOW) is None
    journal.change(first.id, Event.ERROR_ANSWER, NOW, status=402)
    assert pay(journal, 2, POLICY, NOW + 10**6) is None
    insert_paid(journal, 3, payer=OTHER_PAYER)
    journal.change(first.id, Event.ANSWER, NOW, status=200)
    insert_paid(journal, 4)


def test_client_with_a_further_wallet_sees_the_purchases_of_its_first_one(
    journal: Journal,
) -> None:
    first = insert_paid(journal, 1)
    wallets = (PAYER, OTHER_PAYER)
    wider = replace(purchase(), wallets=wallets, account=account_id(wallets))
    found = journal.find_unfinished(wider)
    assert found is not None
    assert found.id == first.id


def test_late_answer_does_not_open_a_payment_that_was_answered(journal: Journal) -> None:
    payment = insert_paid(journal, 1)
    journal.change(payment.id, Event.ANSWER, NOW, status=200, settlement="0xab")
    assert not journal.change(payment.id, Event.ERROR_ANSWER, NOW, status=500)
    (found,) = journal.payments()
    assert (found.state, found.status) == (State.DELIVERED, 200)


def test_payment_that_the_owner_wrote_off_is_named_by_the_next_one(journal: Journal) -> None:
    first = insert_paid(journal, 1)
    journal.change(first.id, Event.NO_ANSWER, NOW)
    journal.change(first.id, Event.WRITE_OFF, NOW)
    second = insert_paid(journal, 2)
    assert second.replaces == first.id
    journal.change(second.id, Event.ANSWER, NOW)
    assert insert_paid(journal, 3).replaces is None


def test_one_authorization_is_recorded_once(journal: Journal) -> None:
    insert_paid(journal, 1)
    second = journal.reserve(purchase(path="/b"), terms(), PAYER, POLICY, NOW)
    assert isinstance(second, Reserved)
    with pytest.raises(JournalError, match="signed before"):
        journal.sign(second.id, authorization(1, NOW + 60), "header", NOW)
    journal.change(second.id, Event.NOT_SIGNED, NOW)
    with pytest.raises(JournalError):
        journal.sign(second.id, authorization(2, NOW + 60), "header", NOW)


def test_payload_is_deleted_once_the_payment_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    payment = insert_paid(journal, 1)
    assert payment.payload == "header 1"
    journal.change(payment.id, Event.ANSWER, NOW, status=200)
    journal.close()
    assert b"header 1" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("is_durable", "level"), [(False, 1), (True, 2)])
def test_durable_journal_waits_for_the_disk(tmp_path: Path, is_durable: bool, level: int) -> None:
    opened = Journal(tmp_path / "journal.sqlite", durable=is_durable)
    with opened.file.reading() as rows:
        assert rows.execute("PRAGMA synchronous").fetchone() == (level,)
        assert rows.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_final_payments_are_deleted_in_time_and_unfinished_ones_kept(journal: Journal) -> None:
    answered, lost = insert_paid(journal, 1), insert_paid(journal, 2, path="/b")
    journal.change(answered.id, Event.ANSWER, NOW)
    insert_paid(journal, 3, NOW + KEEP_S - DAY_S, path="/c")
    assert len(journal.payments()) == 3
    last = insert_paid(journal, 4, NOW + KEEP_S, path="/d")
    assert [payment.id for payment in journal.payments()] == [lost.id, 3, last.id]


def test_refusals_are_kept_for_30_days(journal: Journal) -> None:
    for at in (NOW, NOW + KEEP_REFUSALS_S):
        refusal = Refusal(
            at=at,
            account="a",
            host="api.example.com",
            resource="https://api.example.com/a",
            decision="refuse",
            code="avoid",
            reason="",
        )
        journal.refuse(refusal)
    insert_paid(journal, 1, NOW + KEEP_REFUSALS_S)
    assert [found.at for found in journal.refusals()] == [NOW + KEEP_REFUSALS_S]


def test_fifty_threads_do_not_exceed_a_budget(journal: Journal) -> None:
    policy = Policy(max_host_day=50_000)

    def attempt(number: int) -> Payment | Refuse | None:
        return pay(journal, number, policy, NOW, path=f"/{number}")

    with ThreadPoolExecutor(50) as pool:
        results = list(pool.map(attempt, range(50)))
    refusals = [result for result in results if isinstance(result, Refuse)]
    assert {refusal.code for refusal in refusals} == {Code.OVER_HOST_BUDGET}
    assert len(refusals) == 40
    assert sum(payment.exposure for payment in journal.payments()) == 50_000


def test_only_one_of_eight_guards_records_an_authorization(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    guards = [Journal(path) for _ in range(8)]
    reserved = [
        guard.reserve(purchase(path=f"/{number}"), terms(), PAYER, POLICY, NOW)
        for number, guard in enumerate(guards)
    ]

    def sign(guard: Journal, payment: Reserved | Refuse | None) -> str:
        assert isinstance(payment, Reserved)
        try:
            guard.sign(payment.id, authorization(1, NOW + 60), "header", NOW)
        except JournalError as error:
            return str(error)
        return "recorded"

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(sign, guards, reserved))
    refused = "This authorization was signed before; it is not sent."
    assert sorted(results) == [refused] * 7 + ["recorded"]
    assert len(guards[0].payments()) == 1


@pytest.mark.parametrize(("version", "table"), [(3, ""), (1, ""), (0, "CREATE TABLE payment (id)")])
def test_file_of_another_version_or_program_is_refused_and_not_changed(
    tmp_path: Path, version: int, table: str
) -> None:
    path = tmp_path / "journal.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as rows:
        rows.executescript(f"PRAGMA user_version = {version}; {table};")
    with pytest.raises(JournalError, match=f"version {version}.*reads 2"):
        Journal(path)
    with contextlib.closing(sqlite3.connect(path)) as rows:
        assert rows.execute("PRAGMA user_version").fetchone() == (version,)
        assert rows.execute("SELECT count(*) FROM sqlite_master").fetchone() == (bool(table),)


@pytest.mark.usefixtures("one_day")
def test_processes_share_one_budget(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    words = command("-m", "tests.support.guard_payments")
    running = [start_payer(words, str(path), 100, 1_000_000) for _ in range(3)]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    written = [line for output in outputs for line in output.split()]
    assert len(written) == len(set(written)) == 200
    assert {int(str(entry.nonce), 16) for entry in Journal(path).payments()} == set(
        map(int, written)
    )


@pytest.mark.usefixtures("one_day")
def test_killed_process_leaves_possibly_sent_payments_in_the_journal(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.sqlite"
    words = [sys.executable, "-m", "tests.support.guard_payments"]
    process = start_payer(words, str(path), 10**6, 10**12)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    left = [process.stdout.readline() for _ in range(20)]
    os.kill(process.pid, signal.SIGKILL)
    left += process.communicate(timeout=60)[0].splitlines()
    journal = Journal(path)
    written = {int(str(found.nonce), 16): found for found in journal.payments()}
    assert {int(line) for line in left if line.strip()} <= set(written)
    first = written[int(left[0])]
    assert journal.sum_spent(exposure(int(time.time()))).day >= 20 * 5_000
    assert not is_alive(first.owner)
    assert first.payload == f"header {int(left[0])}"


def test_guards_share_a_store_of_the_program() -> None:
    storage = Storage()
    first, second = Journal(storage), Journal(storage)
    payment = insert_paid(first, 1)
    assert second.find_unresolved() == first.find_unresolved() == (payment,)
    assert pay(second, 1, POLICY, NOW) is None
    storage.close()


def refuse(journal: Journal, host: str, at: int = NOW) -> None:
    journal.refuse(
        Refusal(
            at=at,
            account="account",
            host=host,
            resource=f"https://{host}/",
            decision="refuse",
            code="avoid",
            reason="The service recommends avoid.",
        )
    )


def test_newest_100_000_refusals_are_kept_by_default() -> None:
    journal = Journal()
    for host in ("1", "2", "3", "4"):
        refuse(journal, host)
    with journal.file.transaction() as rows:
        rows.execute("UPDATE refusals SET id = 100001 WHERE id = 4")
    refuse(journal, "100002")

    assert [refusal.host for refusal in journal.refusals()] == ["3", "4", "100002"]


def test_newest_refusals_up_to_the_limit_are_kept() -> None:
    journal = Journal(max_refusals=3)
    for number in range(3):
        refuse(journal, f"{number}")
    assert [refusal.host for refusal in journal.refusals()] == ["0", "1", "2"]

    for number in range(3, 10):
        refuse(journal, f"{number}")
        assert len(journal.refusals()) == 3

    assert [refusal.host for refusal in journal.refusals()] == ["7", "8", "9"]
