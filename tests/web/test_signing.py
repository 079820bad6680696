"""The key that signs, as the configuration names it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support import http_service
from tests.support.signing import KEY, OTHER_KEY, PRIVATE_JWK, verify

from tollgauge.config import Config, ConfigError, load
from tollgauge.core.sale.signature import SIGNATURE_HEADER, PublicKey
from tollgauge.web.signing import signature_header

KEY_X = KEY.public.jwk["x"]
OTHER_X = OTHER_KEY.public.jwk["x"]


def retire_key(x: object, *, nbf: int = 100, exp: int = 200, kty: str = "OKP") -> str:
    return f"""
[[signing.retired]]
kty = "{kty}"
crv = "Ed25519"
x = "{x}"
nbf = {nbf}
exp = {exp}
"""


def load_keys(tmp_path: Path, text: str, **environment: str) -> Config:
    path = tmp_path / "tollgauge.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, environment)


def problem(tmp_path: Path, text: str, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_keys(tmp_path, text, **environment)
    (words,) = caught.value.problems
    return words


def test_answer_that_cannot_be_signed_is_sent_unsigned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    body = b'{"count":9007199254740993}'  # has no canonical form

    assert signature_header(KEY, body, "tollgauge-snapshot", 0) == {}
    printed = capsys.readouterr()
    assert "answer.unsigned" in printed.out + printed.err


def test_answer_is_signed_if_a_key_is_configured() -> None:
    assert signature_header(None, b"{}", "tollgauge-snapshot", 0) == {}
    header = signature_header(KEY, b"{}", "tollgauge-snapshot", 0, payer="0x1")
    signed = verify(header[SIGNATURE_HEADER], b"{}", "tollgauge-snapshot", [KEY.public])
    assert signed.bound == {"payer": "0x1"}


@pytest.mark.parametrize("environment", [{}, {"TOLLGAUGE_SIGNING_KEY": " \n"}], ids=str)
def test_answers_are_not_signed_without_a_key(environment: dict[str, str]) -> None:
    signing = load(None, environment).signing

    assert signing.signing_key is None
    assert signing.public_keys == ()


def test_key_is_read_from_the_environment_or_its_file(tmp_path: Path) -> None:
    path = tmp_path / "signing-key.json"
    path.write_text(PRIVATE_JWK + "\n")

    for environment in (
        {"TOLLGAUGE_SIGNING_KEY": PRIVATE_JWK},
        {"TOLLGAUGE_SIGNING_KEY_FILE": str(path)},
    ):
        signing = load(None, environment).signing
        assert signing.signing_key == KEY
        assert signing.public_keys == (KEY.public,)


def test_invalid_key_is_rejected_at_startup_and_not_shown(tmp_path: Path) -> None:
    secret = json.loads(PRIVATE_JWK)["d"]
    for text in (secret, PRIVATE_JWK[:-2], f"-----BEGIN PRIVATE KEY-----\n{secret}\n-----END"):
        words = problem(tmp_path, "", TOLLGAUGE_SIGNING_KEY=text)
        assert words.startswith("signing.key: The signing key is not a private Ed25519")
        assert "tollgauge keys new" in words
        assert secret[:8] not in words


def test_configuration_does_not_show_the_key() -> None:
    config = load(None, {"TOLLGAUGE_SIGNING_KEY": PRIVATE_JWK})

    assert json.loads(PRIVATE_JWK)["d"] not in repr(config)


async def test_service_and_log_do_not_show_the_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    secret = json.loads(PRIVATE_JWK)["d"]
    async with http_service.open_service(http_service.configuration()) as running:
        await running.get("/v1/x402-trust-preview")
        await running.get("/readyz")
        shown = f"{running.service!r} {running.service.server()!r}"
    printed = capsys.readouterr()

    assert secret[:12] not in shown + printed.out + printed.err


def test_retired_keys_follow_the_current_key(tmp_path: Path) -> None:
    text = retire_key(OTHER_X)

    both = load_keys(tmp_path, text, TOLLGAUGE_SIGNING_KEY=PRIVATE_JWK).signing
    alone = load_keys(tmp_path, text).signing

    old = PublicKey(x=OTHER_KEY.public.x, nbf=100, exp=200)
    assert both.public_keys == (KEY.public, old)
    assert alone.public_keys == (old,)
    assert alone.signing_key is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (retire_key("AAAA"), "signing.retired[0]: The key's x is not 32 bytes"),
        (retire_key(OTHER_X, nbf=5, exp=4), "nbf must not be after exp"),
        (retire_key(OTHER_X, nbf=-1), "signing.retired[0].nbf must be at least 0"),
        (retire_key(OTHER_X, kty="EC"), "signing.retired[0].kty"),
        (retire_key(OTHER_X) + 'd = "AAAA"', "signing.retired[0].d is not a setting"),
        (retire_key(KEY_X), "signing: key is one of the retired keys: make a new one"),
    ],
)
def test_invalid_retired_key_is_rejected(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in problem(tmp_path, text, TOLLGAUGE_SIGNING_KEY=PRIVATE_JWK)
