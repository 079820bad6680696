"""Every encoding of a payment is either that payment or rejected, never a second payment."""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import LedgerWorld

from tollgauge.core.sale.payment import Payment, PaymentHeaderError, decode

HEADER = LedgerWorld().header
DOCUMENT: dict[str, Any] = json.loads(base64.b64decode(HEADER))
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def shuffle(document: Any, draw: st.DrawFn) -> Any:
    """Return the same object with its keys in another order and its hex in another case."""
    if isinstance(document, dict):
        keys = draw(st.permutations(list(document)))
        return {key: shuffle(document[key], draw) for key in keys}
    if isinstance(document, str) and document.startswith("0x"):
        louder = draw(st.lists(st.booleans(), min_size=len(document), max_size=len(document)))
        pairs = zip(document[2:], louder, strict=False)
        return "0x" + "".join(char.upper() if loud else char for char, loud in pairs)
    return document


@st.composite
def encodings(draw: st.DrawFn) -> bytes:
    """Write the payment as JSON with other whitespace, key order, hex case, escapes and unsigned
    fields.
    """
    document = shuffle(DOCUMENT, draw)
    if draw(st.booleans()):
        document["extensions"] = draw(st.dictionaries(st.text(max_size=5), st.integers()))
    text = json.dumps(
        document,
        indent=draw(st.sampled_from((None, 0, 1, "\t"))),
        separators=draw(st.sampled_from((None, (",", ":"), (" , ", " : ")))),
    )
    if draw(st.booleans()):
        text = text.replace("payload", "p\\u0061yload", 1)
    around = draw(st.sampled_from(("", " ", "\n", "\t ")))
    return (around + text + around).encode()


def same(one: Payment, other: Payment) -> bool:
    return (one.id, one.signer_mark) == (other.id, other.signer_mark)


@UNTIMED
@given(encodings())
def test_every_json_encoding_is_the_same_payment(text: bytes) -> None:
    assert same(decode(base64.b64encode(text).decode()), decode(HEADER))


BENDS = (
    lambda text: text.rstrip("="),
    lambda text: text.rstrip("=") + "===",
    lambda text: text + "=",
    lambda text: text + "\n",
    lambda text: " " + text,
    lambda text: text[:40] + " " + text[40:],
    lambda text: text[:40] + "\t" + text[40:],
    lambda text: text[:40] + "!!" + text[40:],
    lambda text: text[:76] + "\r\n" + text[76:],
    lambda text: text.replace("+", "-").replace("/", "_"),
    lambda text: text + text,
    lambda text: text.swapcase(),
    lambda text: f"Bearer {text}",
    lambda text: text.replace("=", "%3D"),
)


@UNTIMED
@given(encodings(), st.sampled_from(BENDS))
def test_every_other_base64_encoding_is_the_same_or_rejected(text: bytes, bend: Any) -> None:
    strict = base64.b64encode(text).decode()
    bent = bend(strict)
    try:
        payment = decode(bent)
    except PaymentHeaderError:
        return
    assert bent == strict, "only the canonical base64 is read"
    assert same(payment, decode(HEADER))


@UNTIMED
@given(encodings(), st.integers(0, 20_000), st.integers(1, 255))
def test_changed_bit_is_the_same_payment_or_another_or_rejected(
    text: bytes, place: int, change: int
) -> None:
    """The key never changes without the signed terms, or the reverse."""
    place %= len(text)
    bent = text[:place] + bytes([text[place] ^ change]) + text[place + 1 :]
    try:
        payment = decode(base64.b64encode(bent).decode())
    except PaymentHeaderError:
        return
    first = decode(HEADER)
    key = (payment.network, payment.asset, payment.payer, payment.nonce)
    assert (payment.id == first.id) == (
        key == (first.network, first.asset, first.payer, first.nonce)
    )


def payment_with_signature(signature: str) -> Payment:
    document = json.loads(json.dumps(DOCUMENT))
    document["payload"]["signature"] = signature
    return decode(base64.b64encode(json.dumps(document).encode()).decode())


@UNTIMED
@given(st.integers(1, ORDER - 1), st.integers(1, ORDER - 1), st.sampled_from((0, 1, 27, 28)))
def test_both_forms_of_an_ecdsa_signature_are_the_same_signature(r: int, s: int, v: int) -> None:
    one = payment_with_signature(f"0x{r:064x}{s:064x}{v:02x}")
    twin = payment_with_signature(f"0x{r:064x}{ORDER - s:064x}{v ^ 1:02x}")
    assert same(one, twin)
    assert not same(one, payment_with_signature(f"0x{r ^ 1:064x}{s:064x}{v:02x}"))


def test_signature_of_a_contract_is_compared_literally() -> None:
    long = "0x" + "Ab" * 200
    assert payment_with_signature(long).signer_mark == long.lower()
    assert (
        payment_with_signature(long).signer_mark
        != payment_with_signature("0x" + "ab" * 199 + "ac").signer_mark
    )
