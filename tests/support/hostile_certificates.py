"""Certificates of bad sellers: expired, of somebody else, of an authority that nobody knows."""

from __future__ import annotations

import datetime as dt
import ssl
from typing import Final

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

ZONE: Final = "sellers.example"
NOT_AFTER: Final = dt.datetime(2031, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
CERTIFICATES: Final = frozenset(
    {"wrong", "nameless", "self-signed", "stranger", "strange-chain", "expired", "not-yet"}
)
"""Hosts whose certificate is not valid for them."""


def contexts_of(authority: trustme.CA) -> ssl.SSLContext:
    """A context that chooses its certificate by the asked name."""
    past = NOT_AFTER.replace(year=2020)
    stranger = trustme.CA()
    chain = stranger.create_child_ca()
    issued = {
        "good": authority.issue_cert(f"good.{ZONE}", not_after=NOT_AFTER),
        "wrong": authority.issue_cert("someone-else.example"),
        "stranger": stranger.issue_cert(f"stranger.{ZONE}"),
        "expired": authority.issue_cert(
            f"expired.{ZONE}", not_before=past.replace(year=2019), not_after=past
        ),
        "not-yet": authority.issue_cert(
            f"not-yet.{ZONE}",
            not_before=NOT_AFTER.replace(year=2090),
            not_after=NOT_AFTER.replace(year=2091),
        ),
        "strange-chain": chain.issue_cert(f"strange-chain.{ZONE}"),
    }
    contexts = {name: _context(leaf) for name, leaf in issued.items()}
    contexts["self-signed"] = _self_signed()
    contexts["nameless"] = _nameless()

    def choose(
        connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: object
    ) -> int | None:
        label = (name or "").split(".")[0]
        connection.context = contexts.get(label, contexts["good"])
        return (
            ssl.AlertDescription.ALERT_DESCRIPTION_HANDSHAKE_FAILURE if label == "alert" else None
        )

    contexts["good"].sni_callback = choose
    return contexts["good"]


def _context(leaf: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)
    return context


def _self_signed() -> ssl.SSLContext:
    """A certificate of its own issue, for the right name."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"self-signed.{ZONE}")])
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(NOT_AFTER.replace(year=2020))
        .not_valid_after(NOT_AFTER)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(f"self-signed.{ZONE}")]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return _loaded(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + certificate.public_bytes(Encoding.PEM)
    )


def _nameless() -> ssl.SSLContext:
    """An authority that serves its own certificate, which names no host."""
    lonely = trustme.CA()
    return _loaded(lonely.private_key_pem.bytes() + lonely.cert_pem.bytes())


def _loaded(pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with trustme.Blob(pem).tempfile() as path:
        context.load_cert_chain(path)
    return context
