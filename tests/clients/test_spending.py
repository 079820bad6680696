"""The file of a payment whose response is not stored yet."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from tests.support.gate_world import payment

from tollgauge.clients.spending import KeptPayment, KeptPaymentError
from tollgauge.core.sale.payment import decode


def test_payment_is_readable_only_by_its_owner_until_it_is_removed(tmp_path: Path) -> None:
    kept = KeptPayment(tmp_path / "kept")
    assert kept.read() is None
    assert kept.keep(payment()) == payment()
    assert kept.path.stat().st_mode & 0o777 == 0o600
    assert kept.read() == decode(payment())
    kept.remove(decode(payment(nonce=2)))
    assert kept.read() == decode(payment())
    kept.remove(decode(payment()))
    assert kept.read() is None


def test_first_stored_payment_is_the_one_to_send(tmp_path: Path) -> None:
    kept = KeptPayment(tmp_path / "kept")
    kept.keep(payment(nonce=1))
    assert kept.keep(payment(nonce=2)) == payment(nonce=1)
    assert kept.path.read_text() == payment(nonce=1)


def test_file_with_other_content_is_named_and_kept(tmp_path: Path) -> None:
    kept = KeptPayment(tmp_path / "kept")
    kept.path.write_text("something else")
    for use in (kept.read, lambda: kept.keep(payment())):
        with pytest.raises(KeptPaymentError, match=f"{kept.path} contains no payment"):
            use()
    assert kept.path.read_text() == "something else"


def test_payment_is_on_disk_before_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, written = KeptPayment(tmp_path / "kept"), list[str]()
    monkeypatch.setattr(os, "fsync", lambda _handle: written.append(kept.path.read_text()))
    kept.keep(payment())
    assert written == [payment()]


def test_payment_that_could_not_be_written_in_full_leaves_no_file(tmp_path: Path) -> None:
    kept = KeptPayment(tmp_path / "kept")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(KeptPaymentError, match="cannot be saved"):
            kept.keep(payment())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not kept.path.exists()
    assert kept.keep(payment()) == payment()
