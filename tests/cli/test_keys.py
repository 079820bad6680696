"""`tollgauge keys`: creating a private key file, and retiring a key."""

from __future__ import annotations

import json
import stat
import time
import tomllib
from pathlib import Path

import pytest
from tests.support.command_line import Command
from tests.support.signing import KEY, PRIVATE_JWK

from tollgauge.config import load
from tollgauge.core.sale.signature import SigningKey


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ((), "signing-key.jwk"),
        (("--jwk",), "signing-key.jwk"),
        (("--pem",), "signing-key.pem"),
        (("--pem", "--out", "mine"), "mine"),
    ],
)
def test_new_key_is_readable_only_by_its_owner_and_can_sign(
    tollgauge: Command, tmp_path: Path, words: tuple[str, ...], file: str
) -> None:
    done = tollgauge("keys", "new", *words)

    path = tmp_path / file
    assert (done.code, done.err) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = SigningKey.of(path.read_text())
    assert f"fingerprint {key.fingerprint}" in done.out
    assert json.dumps(key.public.jwk, separators=(",", ":")) in done.out
    assert f"TOLLGAUGE_SIGNING_KEY_FILE to {path}" in done.out
    signing = load(None, {"TOLLGAUGE_SIGNING_KEY_FILE": str(path)}).signing
    assert signing.signing_key == key


def test_keys_are_unique_and_not_printed(tollgauge: Command, tmp_path: Path) -> None:
    one = tollgauge("keys", "new", "--out", "one", "--json")
    other = tollgauge("keys", "new", "--out", "other", "--json")

    assert one.json["fingerprint"] != other.json["fingerprint"]
    assert one.json["publicJwk"] == SigningKey.of((tmp_path / "one").read_text()).public.jwk
    assert one.json["file"] == "one"
    assert json.loads((tmp_path / "one").read_text())["d"] not in one.out + one.err


def test_key_is_printed_on_request(tollgauge: Command, tmp_path: Path) -> None:
    done = tollgauge("keys", "new", "--out", "-")

    assert SigningKey.of(done.out).fingerprint in done.err
    assert list(tmp_path.iterdir()) == []


def test_existing_file_is_not_replaced(tollgauge: Command, tmp_path: Path) -> None:
    (tmp_path / "signing-key.jwk").write_text("mine")

    done = tollgauge("keys", "new")

    assert (done.code, done.out) == (2, "")
    assert "signing-key.jwk already exists and was not changed." in done.err
    assert (tmp_path / "signing-key.jwk").read_text() == "mine"


def test_missing_folder_is_an_error(tollgauge: Command) -> None:
    done = tollgauge("keys", "new", "--out", "nowhere/key")

    assert (done.code, done.out) == (2, "")
    assert "nowhere/key cannot be written" in done.err


def test_entry_of_retired_key_can_be_appended_to_the_configuration(
    tollgauge: Command, tmp_path: Path
) -> None:
    (tmp_path / "old.jwk").write_text(PRIVATE_JWK)
    tollgauge("init")
    entry = tollgauge("keys", "retire", "old.jwk", "--since", "2026-01-31")
    with (tmp_path / "tollgauge.toml").open("a") as file:
        file.write(entry.out)

    (old,) = load(tmp_path / "tollgauge.toml", {}).signing.public_keys

    assert entry.code == 0
    assert old.fingerprint == KEY.fingerprint
    assert old.nbf == 1_769_817_600
    assert tomllib.loads(entry.out)["signing"]["retired"][0]["exp"] == old.exp


def test_retired_configured_key_signs_for_another_hour(tollgauge: Command) -> None:
    before = int(time.time())
    first = tollgauge("keys", "retire", "--json", TOLLGAUGE_SIGNING_KEY=PRIVATE_JWK)
    words = tollgauge("keys", "retire", TOLLGAUGE_SIGNING_KEY=PRIVATE_JWK).out

    assert first.json["x"] == KEY.public.jwk["x"]
    assert first.json["nbf"] == 0
    assert before + 3_600 <= first.json["exp"] <= int(time.time()) + 3_600
    assert "d" not in first.json
    assert KEY.fingerprint in words
    assert json.loads(PRIVATE_JWK)["d"] not in words


def test_retire_without_a_key_is_an_error(tollgauge: Command, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\x80")

    done = tollgauge("keys", "retire")
    assert (done.code, done.out) == (2, "")
    assert "There is no key to retire." in done.err
    assert tollgauge("keys", "retire", "bytes").code == 2


def test_invalid_key_is_never_printed(tollgauge: Command, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hunter2 hunter2")

    for done in (
        tollgauge("keys", "retire", "key"),
        tollgauge("keys", "retire", TOLLGAUGE_SIGNING_KEY="hunter2 hunter2"),
        tollgauge("config", "check", TOLLGAUGE_SIGNING_KEY="hunter2 hunter2"),
    ):
        assert done.code in (1, 2)
        assert "The signing key is not a private Ed25519 key" in done.err
        assert "hunter2" not in done.out + done.err
