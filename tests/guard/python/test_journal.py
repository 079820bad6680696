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
from pathlib import Path

import pytest
from tests.support.guard_payments import authorization, pay, request, terms
from tests.support.prepared import command

from tollgauge_guard import process as process_module
from tollgauge_guard.decision import Code, Refuse
from tollgauge_guard.journal import DAY_S, KEEP_S, UNSIGNED_S, Journal, Outcome, Reusable
from tollgauge_guard.journal_file import MEMORY, JournalError
from tollgauge_guard.policy import Policy

NOW = 1_767_225_600 + 3_600
POLICY = Policy(max_repeats=99)
ASKED = {(terms().network, terms().asset, terms().pay_to, str(terms().amount))}


@pytest.fixture(params=["file", MEMORY])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal.sqlite" if request.param == "file" else MEMORY)
    yield opened
    opened.close()


def test_what_is_reserved_counts_as_spent_and_what_is_released_does_not(journal: Journal) -> None:
    reserved = journal.reserve(request(), terms(), POLICY, NOW)
    assert isinstance(reserved, int)
    assert journal.spent(request(), NOW).day == 5_000
    journal.release(reserved)
    assert journal.spent(request(), NOW).day == 0


def test_a_reservation_that_nobody_signed_ends(journal: Journal) -> None:
    journal.reserve(request(), terms(), POLICY, NOW)
    assert journal.spent(request(), NOW + UNSIGNED_S - 1).day == 5_000
    assert journal.spent(request(), NOW + UNSIGNED_S).day == 0


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
    assert again.reuse(request(), ASKED, NOW) == Reusable(left, "header 1")
    assert again.reuse(request(), ASKED, NOW) is None


def test_another_host_and_another_day_have_budgets_of_their_own(journal: Journal) -> None:
    pay(journal, 1, POLICY, NOW)
    other = journal.spent(request(host="other.example.com"), NOW)
    assert (other.host_day, other.day) == (0, 5_000)
    assert journal.spent(request(), NOW - NOW % DAY_S + DAY_S - 1).host_day == 5_000
    assert journal.spent(request(), NOW - NOW % DAY_S + DAY_S).day == 0


def test_an_authorization_that_expired_unanswered_still_counts_until_it_is_resolved(
    journal: Journal,
) -> None:
    entry = pay(journal, 1, POLICY, NOW)
    assert isinstance(entry, int)
    later = NOW + 3_600
    assert journal.spent(request(), later).day == 5_000
    assert [unsettled.id for unsettled in journal.unsettled()] == [entry]
    journal.resolve(entry, is_taken=False)
    assert journal.spent(request(), later).day == 0
    assert journal.unsettled() == ()


def test_one_that_was_taken_counts(journal: Journal) -> None:
    entry = pay(journal, 1, POLICY, NOW)
    assert isinstance(entry, int)
    journal.resolve(entry, is_taken=True)
    assert journal.spent(request(), NOW).day == 5_000
    assert journal.unsettled() == ()


def test_the_same_request_is_paid_as_often_as_the_policy_says(journal: Journal) -> None:
    policy = Policy()
    for number in range(3):
        assert isinstance(pay(journal, number, policy, NOW + number), int)
    refused = pay(journal, 4, policy, NOW + 5)
    assert isinstance(refused, Refuse)
    assert refused.code == Code.RETRY_STORM
    assert isinstance(pay(journal, 5, policy, NOW + 5, path="/b"), int)
    assert isinstance(pay(journal, 6, policy, NOW + 601), int)


def test_a_payment_is_written_down_once(journal: Journal) -> None:
    pay(journal, 1, POLICY, NOW)
    second = journal.reserve(request(), terms(), POLICY, NOW)
    assert isinstance(second, int)
    with pytest.raises(JournalError):
        journal.sign(second, authorization(1, NOW + 60), "header")
    journal.release(second)
    with pytest.raises(JournalError):
        journal.sign(second, authorization(2, NOW + 60), "header")


def test_the_header_is_kept_only_while_there_is_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    entry = pay(journal, 1, POLICY, NOW)
    assert isinstance(entry, int)
    journal.finish(entry, Outcome.SETTLED, 200, "0xab")
    journal.close()
    assert b"header 1" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_payment_without_an_answer_is_reused_once_while_it_is_valid(journal: Journal) -> None:
    entry = pay(journal, 1, POLICY, NOW)
    assert isinstance(entry, int)
    assert journal.reuse(request(), ASKED, NOW) is None  # it is on its way
    journal.finish(entry, Outcome.UNKNOWN)
    assert journal.reuse(request(path="/other"), ASKED, NOW) is None
    assert journal.reuse(request(), ASKED, NOW + 55) is None  # nobody could settle it in time
    assert journal.reuse(request(), set(), NOW + 54) is None  # another price is asked now
    assert journal.reuse(request(), ASKED, NOW + 54) == Reusable(entry, "header 1")
    assert journal.reuse(request(), ASKED, NOW + 54) is None
    journal.finish(entry, Outcome.REFUSED, 402)
    assert journal.reuse(request(), ASKED, NOW) is None


def test_answered_payments_are_forgotten_in_time_and_unanswered_ones_kept(
    journal: Journal,
) -> None:
    answered, lost = pay(journal, 1, POLICY, NOW), pay(journal, 2, POLICY, NOW)
    assert isinstance(answered, int)
    journal.finish(answered, Outcome.ANSWERED, 200)
    pay(journal, 3, POLICY, NOW + KEEP_S - DAY_S)
    assert len(journal.entries()) == 3
    last = pay(journal, 4, POLICY, NOW + KEEP_S)
    assert [entry.id for entry in journal.entries()] == [lost, 3, last]


def test_fifty_threads_do_not_exceed_a_budget(journal: Journal) -> None:
    policy = Policy(max_host_day=50_000, max_repeats=99)

    def attempt(number: int) -> int | Refuse:
        return pay(journal, number, policy, NOW)

    with ThreadPoolExecutor(50) as pool:
        results = list(pool.map(attempt, range(50)))
    refusals = [result for result in results if isinstance(result, Refuse)]
    assert {refusal.code for refusal in refusals} == {Code.OVER_HOST_BUDGET}
    assert len(refusals) == 40
    assert sum(entry.micro_usd for entry in journal.entries()) == 50_000


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
    assert journal.spent(request(), int(time.time())).day >= 20 * 5_000
    reused = journal.reuse(request(path=f"/{int(left[0])}"), ASKED, first.at)
    assert reused == Reusable(first.id, f"header {int(left[0])}")  # its process is dead
