"""A journal in PostgreSQL, shared by guards of several processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.support.command_server import command
from tests.support.guard_payments import PAYER, authorization, exposure, pay, purchase, start_payer
from tests.support.guard_payments import terms as priced
from tests.support.postgres import Postgres, Server

from tollgauge_guard import cli
from tollgauge_guard.journal import Journal, Refusal, Reserved
from tollgauge_guard.journal_file import JournalError
from tollgauge_guard.payment import Event, Payment, State
from tollgauge_guard.policy import Policy

pytestmark = pytest.mark.postgres
NOW = 1_767_225_600 + 3_600
POLICY = Policy()


@pytest.fixture
def place(postgres: Postgres) -> str:
    return postgres.new_schema()


@pytest.fixture
def journal(place: str) -> Iterator[Journal]:
    opened = Journal(place)
    yield opened
    opened.close()


def reserve(journal: Journal, path: str = "/a") -> Reserved:
    reserved = journal.reserve(purchase(path=path), priced(), PAYER, POLICY, NOW)
    assert isinstance(reserved, Reserved)
    return reserved


def test_second_guard_finds_the_payments_of_the_first(place: str, journal: Journal) -> None:
    payment = pay(journal, 1, POLICY, NOW)
    other = Journal(place)
    assert other.payments() == (payment,)
    assert pay(other, 2, POLICY, NOW) is None
    assert other.sum_spent(exposure(NOW)).day == 5_000
    other.close()


def test_only_one_of_eight_guards_records_an_authorization(place: str) -> None:
    guards = [Journal(place) for _ in range(8)]
    reserved = [reserve(guard, f"/{number}") for number, guard in enumerate(guards)]

    def sign(guard: Journal, payment: Payment) -> str:
        try:
            guard.sign(payment.id, authorization(1, NOW + 60), "header", NOW)
        except JournalError as error:
            return str(error)
        return "recorded"

    with ThreadPoolExecutor(8) as pool:
        results = sorted(pool.map(sign, guards, reserved))
    refused = "This authorization was signed before; it is not sent."
    assert results == [refused] * 7 + ["recorded"]
    for guard in guards:
        guard.close()


def test_process_of_another_machine_is_alive_while_the_server_sees_it(
    place: str, journal: Journal
) -> None:
    far = Journal(place)
    _, _, key = far.processes.this_process().partition("-")
    owner = f"{2**22 + 1}-{key}"  # no process of this machine has that number
    assert journal.processes.is_alive(owner)
    far.close()
    deadline = time.monotonic() + 10  # the server ends the session after the client
    while journal.processes.is_alive(owner) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not journal.processes.is_alive(owner)


def test_forked_child_has_a_connection_and_a_name_of_its_own(journal: Journal) -> None:
    parent = journal.processes.this_process()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            has_its_own_name = journal.processes.this_process() != parent
            seen = (has_its_own_name, journal.processes.is_alive(parent), journal.payments())
            os.write(writer, repr(seen).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"(True, True, ())"
    pay(journal, 1, POLICY, NOW)
    assert len(journal.payments()) == 1


@pytest.mark.usefixtures("one_day")
def test_processes_share_one_budget(place: str, journal: Journal) -> None:
    words = command("-m", "tests.support.guard_payments")
    running = [start_payer(words, place, 100, 1_000_000) for _ in range(3)]
    outputs = [process.communicate("go\n", timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    written = [int(line) for output in outputs for line in output.split()]
    assert len(written) == len(set(written)) == 200
    recorded = {int(str(payment.nonce), 16) for payment in journal.payments()}
    assert recorded == set(written)


@pytest.mark.usefixtures("one_day")
def test_killed_process_leaves_possibly_sent_payments_and_no_reservation(
    place: str, journal: Journal
) -> None:
    words = [sys.executable, "-m", "tests.support.guard_payments"]
    process = start_payer(words, place, 10**6, 10**12)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    left = [process.stdout.readline() for _ in range(20)]
    os.kill(process.pid, signal.SIGKILL)
    left += process.communicate(timeout=60)[0].splitlines()
    written = {int(str(found.nonce), 16): found for found in journal.payments()}
    assert {int(line) for line in left if line.strip()} <= set(written)
    first = written[int(left[0])]
    assert first.state is State.IN_FLIGHT
    assert first.payload == f"header {int(left[0])}"
    deadline = time.monotonic() + 10
    while journal.processes.is_alive(first.owner) and time.monotonic() < deadline:
        time.sleep(0.01)
    spent = journal.sum_spent(exposure(int(time.time()))).day
    limit = Policy(max_host_day=spent, max_day=spent)
    # Over its limit, the journal gives back what dead processes had reserved.
    pay(journal, 1, limit, int(time.time()), path="/other")
    assert all(
        found.state is not State.RESERVED for found in journal.select("owner = ?", first.owner)
    )
    assert journal.change(first.id, Event.PROCESS_DIED, NOW, expected=State.IN_FLIGHT)


def test_guard_that_stops_in_a_transaction_does_not_stop_the_others(
    place: str, journal: Journal
) -> None:
    stopped, ended = Journal(place), threading.Event()

    def hold() -> None:
        with stopped.file.transaction() as rows:
            rows.execute("SET idle_in_transaction_session_timeout = '100ms'")
            ended.wait(30)
            with pytest.raises(psycopg.Error):
                rows.execute("SELECT 1")

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(hold)
        time.sleep(0.05)
        assert isinstance(pay(journal, 1, POLICY, NOW), Payment)
        ended.set()
        with pytest.raises(JournalError):
            held.result(30)


def test_crash_of_the_server_loses_no_payment_that_was_recorded(killable_postgres: Server) -> None:
    journal = Journal(killable_postgres.postgres.new_schema())
    payment = pay(journal, 1, POLICY, NOW)
    killable_postgres.kill()
    with pytest.raises(JournalError, match="cannot be read or written"):
        pay(journal, 2, POLICY, NOW, path="/b")
    killable_postgres.start_again()
    assert journal.payments() == (payment,)
    assert isinstance(pay(journal, 2, POLICY, NOW, path="/b"), Payment)
    journal.close()


def test_commits_wait_for_the_disk_of_a_server_that_does_not_wait_by_default(
    journal: Journal,
) -> None:
    """The server of the tests runs with synchronous_commit = off."""
    with journal.file.reading() as rows:
        assert rows.execute("SHOW synchronous_commit").fetchone() == ("on",)


def test_tables_of_another_program_are_left_alone(place: str) -> None:
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("CREATE TABLE payments (id INTEGER)")
        with pytest.raises(JournalError, match="is not a journal"):
            Journal(place)
        assert connection.execute("SELECT to_regclass('budgets')").fetchone() == (None,)


def test_text_that_postgresql_cannot_store_does_not_prevent_a_refusal(journal: Journal) -> None:
    refusal = Refusal(
        at=NOW,
        account="a",
        host="api.example.com",
        resource="https://api.example.com/a",
        decision="refuse",
        code="payto-malformed",
        reason="malformed",
        pay_to="0x\0?%s",
    )
    journal.refuse(refusal)
    assert [found.pay_to for found in journal.refusals()] == ["0x\ufffd?%s"]


def test_password_is_not_shown(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    secret = place.replace("tollgauge@", "tollgauge:secret@")
    journal = Journal(secret)
    assert pay(journal, 1, POLICY, NOW)
    assert "secret" not in journal.path
    with pytest.raises(JournalError) as refused:
        Journal("postgresql://tollgauge:secret@127.0.0.1:1/none")
    assert "secret" not in str(refused.value)
    assert cli.main(["unresolved", "--journal", secret]) == 1
    assert "https://api.example.com/a" in capsys.readouterr().out
    journal.close()
