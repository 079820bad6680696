"""`tollgauge keys`: create and retire the key that signs responses (docs/signatures.md)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
import typer

from tollgauge.cli.terminal import (
    ConfigFile,
    Json,
    load_config,
    note,
    read_input,
    show,
    write_new_file,
)
from tollgauge.core.base.errors import TollgaugeError

if TYPE_CHECKING:
    from tollgauge.core.sale.signature import SigningKey

VARIABLE: Final = "TOLLGAUGE_SIGNING_KEY"
GRACE_PERIOD_S: Final = 3_600  # a retired key may still sign while processes restart
_STANDARD_OUTPUT: Final = "-"

keys_app = typer.Typer(help="Create and retire the signing key.", no_args_is_help=True)


@keys_app.callback()
def keys_commands() -> None:
    """Create and retire the signing key."""


@keys_app.command(name="new")
def new(
    pem: Annotated[bool, typer.Option("--pem/--jwk", help="PEM, or a one-line JWK.")] = False,
    out: Annotated[
        str, typer.Option("--out", help="New file for the private key, or - to print it.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Create an Ed25519 key and write it to a file that only its owner can read.

    The default file is signing-key.jwk or signing-key.pem. An existing
    file is not overwritten (exit 2).
    """
    from tollgauge.core.sale.signature import SigningKey
    from tollgauge.web.signing import new_key

    text = new_key(pem=pem)
    key = SigningKey.of(text)
    file = out or ("signing-key.pem" if pem else "signing-key.jwk")
    if file == _STANDARD_OUTPUT:
        sys.stdout.write(text)
        for line in _words(key, file):
            note(line)
        return
    hint = "Use --out to name another file: a lost key cannot be recovered."
    write_new_file(Path(file), text, mode=0o600, hint=hint)
    document = {"file": file, "fingerprint": key.fingerprint, "publicJwk": key.public.jwk}
    show(document, _words(key, file), as_json=as_json)


@keys_app.command(name="retire")
def retire(
    file: Annotated[
        str, typer.Argument(help="The old private key's file. Default: the configured key.")
    ] = "",
    since: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="The day (UTC) on which it began to sign."),
    ] = None,
    successor: Annotated[
        str, typer.Option(help="The new private key's file: guards that pin the old key follow it.")
    ] = "",
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Print the configuration entry that keeps an old key valid, to append to tollgauge.toml.

    Signatures of the old key are accepted for another hour, so that all
    processes can be restarted with the new key.
    """
    from tollgauge.core.sale.signature import SigningKey

    key = SigningKey.of(_text(file)) if file else load_config(config).signing.signing_key
    if key is None:
        raise TollgaugeError(
            "There is no key to retire.", hint=f"Name its file, or set {VARIABLE} to the old key."
        )
    entry: dict[str, str | int] = {name: key.public.jwk[name] for name in ("kty", "crv", "x")} | {
        "nbf": int(since.replace(tzinfo=UTC).timestamp()) if since else 0,
        "exp": int(time.time()) + GRACE_PERIOD_S,
    }
    if successor:
        named = SigningKey.of(_text(successor)).public
        entry["succession"] = key.name_successor(named, int(time.time() * 1_000))
    show(entry, _entry_lines(key, entry), as_json=as_json)


def _text(file: str) -> str:
    try:
        return read_input(file).decode()
    except UnicodeDecodeError:
        raise TollgaugeError(
            f"{file} is not a text file.", hint="Name the file that contains the private key."
        ) from None


def _words(key: SigningKey, file: str) -> Iterator[str]:
    if file != _STANDARD_OUTPUT:
        yield f"wrote {file}, readable only by you"
    yield f"fingerprint {key.fingerprint}"
    yield f"public key  {orjson.dumps(key.public.jwk).decode()}"
    where = "" if file == _STANDARD_OUTPUT else f", or {VARIABLE}_FILE to {Path(file).absolute()}"
    yield f"To use it, set {VARIABLE} to its text{where}, and restart every process."
    yield "To keep an earlier key valid, append the entry that `tollgauge keys retire` prints."


def _entry_lines(key: SigningKey, entry: dict[str, Any]) -> Iterator[str]:
    until = datetime.fromtimestamp(entry["exp"], UTC)
    yield f"# {key.fingerprint}, which signs until {until:%Y-%m-%d %H:%M} UTC"
    yield "[[signing.retired]]"
    for name, value in entry.items():
        yield f"{name} = {orjson.dumps(value).decode()}"
