"""Payments: parsing of headers, comparison with offers, and states."""

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.sale.payment import (
    Offer,
    Payment,
    PaymentHeaderError,
    canonical_body,
    decode,
    find_refusal,
    request_digest,
)
from tollgauge.core.sale.payment_state import (
    EXPIRY_GRACE_S,
    TRANSITIONS,
    Proof,
    State,
    proven_state,
)

NOW = 1_800_000_000
OFFER = Offer(
    route="/v1/x402-trust",
    resource="https://tollgauge.example.org/v1/x402-trust",
    network="eip155:8453",
    asset="0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
    amount=5_000,
    pay_to="0x" + "Ab" * 20,
    domain_name="USD Coin",
    domain_version="2",
)
DOCUMENT: dict[str, Any] = {
    "x402Version": 2,
    "resource": {"url": OFFER.resource},
    "accepted": {
        "scheme": "exact",
        "network": OFFER.network,
        "amount": "5000",
        "asset": OFFER.asset,
        "payTo": OFFER.pay_to,
        "maxTimeoutSeconds": 300,
        "extra": {"name": "USD Coin", "version": "2"},
    },
    "payload": {
        "signature": "0x" + "1b" * 65,
        "authorization": {
            "from": "0x" + "cD" * 20,
            "to": OFFER.pay_to,
            "value": "5000",
            "validAfter": "0",
            "validBefore": str(NOW + 300),
            "nonce": "0x" + "eF" * 32,
        },
    },
}


def header(document: object, **options: Any) -> str:
    return base64.b64encode(json.dumps(document, **options).encode()).decode()


def change_payload(path: str, value: object) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    holder = document
    *parents, last = path.split(".")
    for key in parents:
        holder = holder[key]
    if value is None:
        del holder[last]
    else:
        holder[last] = value
    return document


def payment(path: str = "x402Version", value: object = 2) -> Payment:
    return decode(header(change_payload(path, value)))


def test_good_payment_pays_its_offer() -> None:
    assert find_refusal(payment(), OFFER, now_s=NOW) is None


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("payload.authorization.to", "0x" + "11" * 20, "recipient_mismatch"),
        ("payload.authorization.value", "4999", "amount_mismatch"),
        ("payload.authorization.value", "5001", "amount_mismatch"),
        ("payload.authorization.validBefore", str(NOW + 5), "expired"),
        ("payload.authorization.validBefore", str(NOW + 10_000), "valid_too_long"),
        ("payload.authorization.validAfter", str(NOW + 60), "not_yet_valid"),
        ("accepted.network", "eip155:84532", "network_mismatch"),
        ("accepted.asset", "0x" + "22" * 20, "asset_mismatch"),
        ("accepted.scheme", "upto", "unsupported_scheme"),
    ],
)
def test_signed_values_are_compared_exactly(path: str, value: str, reason: str) -> None:
    assert find_refusal(payment(path, value), OFFER, now_s=NOW) == reason


def test_cheaper_accepted_amount_does_not_lower_the_price() -> None:
    assert find_refusal(payment("accepted.amount", "1"), OFFER, now_s=NOW) is None
    assert find_refusal(payment("payload.authorization.value", "1"), OFFER, now_s=NOW) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!!!!",
        header(DOCUMENT) + " ",
        " " + header(DOCUMENT),
        header(DOCUMENT).rstrip("=") + "\n",
        base64.urlsafe_b64encode(b'{"a":"\xc3\xbf\xc3\xbf?>~~~"}').decode(),
        base64.b64encode(b"[1]").decode(),
        base64.b64encode(b"[" * 90_000).decode(),
        base64.b64encode(b'{"x402Version":2,"x402Version":2}').decode(),
    ],
)
def test_header_that_is_not_strict_is_refused(text: str) -> None:
    with pytest.raises(PaymentHeaderError):
        decode(text)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("x402Version", 1),
        ("x402Version", "2"),
        ("x402Version", True),
        ("x402Version", 2.0),
        ("accepted", None),
        ("accepted", []),
        ("payload", None),
        ("payload.signature", "0x00"),
        ("payload.signature", None),
        ("payload.authorization", None),
        ("payload.authorization.from", "0x123"),
        ("payload.authorization.nonce", "0x" + "aa" * 31),
        ("payload.authorization.value", 5000),
        ("payload.authorization.value", "05000"),
        ("payload.authorization.value", "+5000"),
        ("payload.authorization.value", "5_000"),
        ("payload.authorization.value", "٥٠٠٠"),
        ("payload.authorization.value", str(2**256)),
        ("payload.authorization.value", "9" * 5_000),
        ("payload.authorization.validBefore", "soon"),
    ],
)
def test_payment_of_the_wrong_shape_is_refused(path: str, value: object) -> None:
    with pytest.raises(PaymentHeaderError):
        decode(header(change_payload(path, value)))


@given(
    st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: base64.b64encode(raw).decode())
)
def test_no_header_raises_anything_but_the_one_error(text: str) -> None:
    try:
        decode(text)
    except PaymentHeaderError as error:
        assert str(error)  # noqa: PT017 - the point is that nothing else comes out


def test_every_re_encoding_of_a_payment_is_the_same_payment() -> None:
    spaced = header(DOCUMENT, indent=3)
    reordered = header(dict(reversed(DOCUMENT.items())))
    upper = copy.deepcopy(DOCUMENT)
    upper["payload"]["authorization"]["nonce"] = "0x" + "EF" * 32
    upper["payload"]["authorization"]["from"] = "0x" + "cd" * 20
    ids = {decode(text).id for text in (header(DOCUMENT), spaced, reordered, header(upper))}
    assert len(ids) == 1


def test_another_nonce_is_another_payment() -> None:
    other = payment("payload.authorization.nonce", "0x" + "01" * 32)
    assert other.id != payment().id


def test_digest_binds_method_path_and_body() -> None:
    base = request_digest("POST", "/a", b"{}")
    assert base == request_digest("post", "/a", b"{}")
    others = (("GET", "/a", b"{}"), ("POST", "/b", b"{}"), ("POST", "/a", b"[]"))
    assert base not in {request_digest(*other) for other in others}
    assert request_digest("POST", "/a", b"b{}") != request_digest("POST", "/ab", b"{}")


def test_body_has_one_canonical_form() -> None:
    one, other = json.loads('{"a": 1, "b": "\\u00e9"}'), json.loads('{"b":"é","a":1}')
    assert canonical_body(one) == canonical_body(other)


@given(st.sampled_from(State))
def test_final_state_stays(state: State) -> None:
    final = {State.FAILED, State.EXPIRED}
    assert (TRANSITIONS[state] == frozenset()) == (state in final)


def test_only_the_way_through_settling_leads_to_settled() -> None:
    sources = {state for state, targets in TRANSITIONS.items() if State.SETTLED in targets}
    assert sources == {State.SETTLING, State.UNKNOWN}


@pytest.mark.parametrize(
    ("proof", "late", "state"),
    [
        (Proof.PAID, False, State.SETTLED),
        (Proof.PAID, True, State.SETTLED),
        (Proof.CANCELLED, False, State.FAILED),
        (Proof.OTHER, False, State.FAILED),
        (Proof.UNUSED, False, None),
        (Proof.UNUSED, True, State.EXPIRED),
        (None, True, None),
    ],
)
def test_only_a_proof_resolves_a_payment(
    proof: Proof | None, late: bool, state: State | None
) -> None:
    now = NOW + (EXPIRY_GRACE_S + 1 if late else 0)
    assert proven_state(proof, valid_before_s=NOW, now_s=now) is state
