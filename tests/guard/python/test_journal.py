"""The journal: budgets hold among threads and processes, and nothing that was signed is lost."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.guard_payments import PAYER, account, authorization, pay, request, terms
from tests.support.prepared import command

from tollgauge_guard import process as process_module
from tollgauge_guard.decision import Code, Refuse, Spent
from tollgauge_guard.entry import Outcome
from tollgauge_guard.journal import DAY_S, KEEP_S, Journal
from tollgauge_guard.journal_file import MEMORY, JournalError
from tollgauge_guard.policy import Policy
from tollgauge_guard.signed import CLOCK_SLACK_S

NOW = 1_767_225_600 + 3_600
POLICY = Policy(max_repeats=99)
OTHER_PAYER = "0x" + "7e" * 20


@pytest.fixture(params=["file", MEMORY])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal.sqlite" if request.param == "file" else MEMORY)
    yield opened
    opened.close()


def test_what_is_reserved_counts_as_spent_and_what_is_released_does_not(journal: Journal) -> None:
    reserved = journal.reserve(request(), terms(), PAYER, POLICY, NOW)
    assert isinstance(reserved, int)
    assert journal.spent(request(), account(), NOW).day == 5_000
    journal.release(reserved)
    assert journal.spent(request(), account(), NOW).day == 0


def test_reservation_lasts_until_what_is_signed_for_it_expires(journal: Journal) -> None:
    expires = NOW + terms().timeout + CLOCK_SLACK_S
    reserved = journal.reserve(request(), terms(), PAYER, POLICY, NOW)
    assert isinstance(reserved, int)
    assert journal.spent(request(), account(), expires - 1).day == 5_000
    assert journal.spent(request(), account(), expires).day == 0
    with pytest.raises(JournalError, match="no reservation any more"):
        journal.sign(reserved, authorization(1, expires + 60), "header", expires)


def test_slow_signer_does_not_exceed_a_budget(journal: Journal) -> None:
    hour = replace(terms(400_000), timeout=3_600)
    policy = Policy(max_day=500_000)
    slow = journal.reserve(request(), hour, PAYER, policy, NOW)
    assert isinstance(slow, int)
    later = NOW + 900
    other = journal.reserve(request(path="/b"), hour, PAYER, policy, later)
    assert isinstance(other, Refuse)
    assert other.code == Code.OVER_DAY_BUDGET
    journal.sign(slow, authorization(1, later + 60, 400_000), "header", later)
    assert journal.spent(request(), account(), later).day == 400_000


def test_a_restarted_process_takes_over_what_one_of_the_same_number_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container every start has the same process number."""
    path = tmp_path / "journal.sqlite"
    with monkeypatch.context() as before:
        before.setattr(process_module, "_START", 1)
        left = pay(Journal(path), 1, POLICY, NOW)
    assert isinstance(left, int)
    again = Journal(path)
    assert again.send_again(left, NOW) == "header 1"
    assert again.send_again(left, NOW) is None


def test_another_host_and_another_day_have_budgets_of_their_own(journal: Journal) -> None:
    pay(journal, 1, POLICY, NOW)
    other = journal.spent(request(host="other.example.com"), account(), NOW)
    assert (other.host_day, other.day) == (0, 5_000)
    assert journal.spent(request(), account(), NOW - NOW % DAY_S + DAY_S - 1).host_day == 5_000
    assert journal.spent(request(), account(), NOW - NOW % DAY_S + DAY_S).day == 0


def test_payers_networks_and_tokens_have_budgets_of_their_own(journal: Journal) -> None:
    assert isinstance(pay(journal, 1, POLICY, NOW), int)
    finish_all(journal)
    assert journal.spent(request(), account(), NOW).day == 5_000
    for other in (
        account(OTHER_PAYER),
        replace(account(), network="eip155:1"),
        replace(account(), asset="0x" + "1" * 40),
    ):
        assert journal.spent(request(), other, NOW) == Spent()


def test_unsettled_and_unresolved_are_those_of_a_payer(journal: Journal) -> None:
    mine = pay(journal, 1, POLICY, NOW)
    assert isinstance(pay(journal, 2, POLICY, NOW, payer=OTHER_PAYER), int)
    assert [entry.id for entry in journal.unsettled([PAYER])] == [mine]
    assert [entry.id for entry in journal.unresolved([PAYER])] == [mine]
    assert len(journal.unsettled()) == len(journal.unresolved()) == 2


def test_open_payment_counts_until_it_is_dead(journal: Journal) -> None:
    number = pay(journal, 1, POLICY, NOW)
    assert isinstance(number, int)
    journal.finish(number, Outcome.OPEN)
    entry = journal.entry(number)
    assert entry is not None
    later = NOW + 3_600
    assert journal.spent(request(), account(), later).day == 5_000
    assert journal.unsettled() == (entry,)
    assert journal.close_unfinished(entry, Outcome.DEAD, later)
    assert journal.spent(request(), account(), later).day == 0
    assert journal.unsettled() == ()
    assert not journal.close_unfinished(entry, Outcome.WRITTEN_OFF, later)


@pytest.mark.parametrize(
    "outcome", [Outcome.PAID_UNANSWERED, Outcome.LAPSED, Outcome.WRITTEN_OFF], ids=str
)
def test_payment_that_is_not_dead_stays_spent(journal: Journal, outcome: Outcome) -> None:
    number = pay(journal, 1, POLICY, NOW)
    assert isinstance(number, int)
    journal.finish(number, Outcome.OPEN)
    entry = journal.entry(number)
    assert entry is not None
    assert journal.close_unfinished(entry, outcome, NOW)
    assert journal.spent(request(), account(), NOW).day == 5_000


def test_no_second_payment_of_a_purchase_is_reserved_before_the_first_has_ended(
    journal: Journal,
) -> None:
    first = pay(journal, 1, POLICY, NOW)
    assert isinstance(first, int)
    assert pay(journal, 2, POLICY, NOW) is None
    journal.finish(first, Outcome.OPEN, 402)
    assert pay(journal, 2, POLICY, NOW + 10**6) is None
    assert isinstance(pay(journal, 3, POLICY, NOW, payer=OTHER_PAYER), int)
    journal.finish(first, Outcome.ANSWERED, 200)
    assert isinstance(pay(journal, 4, POLICY, NOW), int)


def test_late_answer_does_not_open_a_payment_that_has_ended(journal: Journal) -> None:
    number = pay(journal, 1, POLICY, NOW)
    assert isinstance(number, int)
    journal.finish(number, Outcome.SETTLED, 200, "0xab")
    journal.finish(number, Outcome.OPEN, 500)
    (entry,) = journal.entries()
    assert (entry.outcome, entry.status) == (Outcome.SETTLED, 200)


def test_the_same_request_is_paid_as_often_as_the_policy_says(journal: Journal) -> None:
    policy = Policy()
    for number in range(3):
        assert isinstance(pay(journal, number, policy, NOW + number), int)
        finish_all(journal)
    refused = pay(journal, 4, policy, NOW + 5)
    assert isinstance(refused, Refuse)
    assert refused.code == Code.RETRY_STORM
    assert isinstance(pay(journal, 5, policy, NOW + 5, path="/b"), int)
    assert isinstance(pay(journal, 6, policy, NOW + 601), int)


def test_a_payment_is_written_down_once(journal: Journal) -> None:
    pay(journal, 1, POLICY, NOW)
    second = journal.reserve(request(path="/b"), terms(), PAYER, POLICY, NOW)
    assert isinstance(second, int)
    with pytest.raises(JournalError):
        journal.sign(second, authorization(1, NOW + 60), "header", NOW)
    with pytest.raises(JournalError):
        journal.sign(second, authorization(2, NOW + 60, payer=OTHER_PAYER), "header", NOW)
    journal.release(second)
    with pytest.raises(JournalError):
        journal.sign(second, authorization(2, NOW + 60), "header", NOW)


def test_the_header_is_kept_only_while_there_is_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    entry = pay(journal, 1, POLICY, NOW)
    assert isinstance(entry, int)
    journal.finish(entry, Outcome.SETTLED, 200, "0xab")
    journal.close()
    assert b"header 1" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_open_payment_is_sent_again_once_at_a_time_while_it_is_valid(journal: Journal) -> None:
    entry = pay(journal, 1, POLICY, NOW)
    assert isinstance(entry, int)
    assert journal.send_again(entry, NOW) is None  # it is on its way
    journal.finish(entry, Outcome.OPEN)
    assert journal.send_again(entry, NOW + 54) is None  # 6 seconds are left
    assert journal.send_again(entry, NOW + 53) == "header 1"
    assert journal.send_again(entry, NOW + 53) is None
    journal.finish(entry, Outcome.OPEN, 402)
    assert journal.send_again(entry, NOW) == "header 1"
    journal.finish(entry, Outcome.ANSWERED, 200)
    assert journal.send_again(entry, NOW) is None


def test_answered_payments_are_forgotten_in_time_and_unanswered_ones_kept(
    journal: Journal,
) -> None:
    answered, lost = pay(journal, 1, POLICY, NOW), pay(journal, 2, POLICY, NOW, path="/b")
    assert isinstance(answered, int)
    journal.finish(answered, Outcome.ANSWERED, 200)
    pay(journal, 3, POLICY, NOW + KEEP_S - DAY_S, path="/c")
    assert len(journal.entries()) == 3
    last = pay(journal, 4, POLICY, NOW + KEEP_S, path="/d")
    assert [entry.id for entry in journal.entries()] == [lost, 3, last]


def test_fifty_threads_do_not_exceed_a_budget(journal: Journal) -> None:
    policy = Policy(max_host_day=50_000, max_repeats=99)

    def attempt(number: int) -> int | Refuse | None:
        return pay(journal, number, policy, NOW, path=f"/{number}")

    with ThreadPoolExecutor(50) as pool:
        results = list(pool.map(attempt, range(50)))
    refusals = [result for result in results if isinstance(result, Refuse)]
    assert {refusal.code for refusal in refusals} == {Code.OVER_HOST_BUDGET}
    assert len(refusals) == 40
    assert sum(entry.micro_usd for entry in journal.entries()) == 50_000


def finish_all(journal: Journal) -> None:
    for entry in journal.unresolved():
        journal.finish(entry.id, Outcome.ANSWERED, 200)


def payer(words: list[str], path: Path, count: int, limit: int) -> subprocess.Popen[str]:
    """A process that pays as soon as it gets a line."""
    order = [*words, str(path), str(count), str(limit)]
    return subprocess.Popen(order, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("one_day")
def test_processes_share_one_budget(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    words = command("-m", "tests.support.guard_payments")
    running = [payer(words, path, 100, 1_000_000) for _ in range(3)]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    written = [line for output in outputs for line in output.split()]
    assert len(written) == len(set(written)) == 200
    assert {int(entry.nonce, 16) for entry in Journal(path).entries()} == set(map(int, written))


@pytest.mark.usefixtures("one_day")
def test_a_killed_process_leaves_every_payment_that_may_have_left_in_the_journal(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.sqlite"
    words = [sys.executable, "-m", "tests.support.guard_payments"]
    process = payer(words, path, 10**6, 10**12)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    left = [process.stdout.readline() for _ in range(20)]
    os.kill(process.pid, signal.SIGKILL)
    left += process.communicate(timeout=60)[0].splitlines()
    journal = Journal(path)
    unsettled = {int(entry.nonce, 16): entry for entry in journal.unsettled()}
    assert {int(line) for line in left if line.strip()} <= set(unsettled)
    first = unsettled[int(left[0])]
    assert journal.spent(request(), account(), int(time.time())).day >= 20 * 5_000
    again = journal.send_again(first.id, first.at)
    assert again == f"header {int(left[0])}"  # its process is dead
