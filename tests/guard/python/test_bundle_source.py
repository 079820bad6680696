"""Sources of bundles: a reachable, unreachable, old or hostile server, and the cache."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from guard.cases import sample_bundle as sample
from tests.support.guard_seller import Answer, Call, Seller, run_seller

from tollgauge_guard import GuardError, open_guard
from tollgauge_guard import bundle_source as module
from tollgauge_guard.bundle import Bundle, BundleError
from tollgauge_guard.bundle_source import FileBundle, RemoteBundle
from tollgauge_guard.signature import SignatureError, pin_keys

KEY = pin_keys(sample.public_key())
FINGERPRINT = pin_keys(sample.fingerprint())
NOW = int(time.time())


@pytest.fixture(scope="module")
def server() -> Iterator[Seller]:
    with run_seller() as running:
        yield running


@pytest.fixture
def service(server: Seller) -> Service:
    return Service(server)


class Service:
    """A service with a bundle of `as_of`, and the requests that it received."""

    def __init__(self, server: Seller) -> None:
        self.server = server
        server.calls.clear()
        server.unpaid = self.respond
        self.as_of = NOW - 60
        self.variant = "all"
        self.answer: Callable[[Call], Answer | None] = lambda _call: None
        self.url = f"{server.url}/trust/bundle"
        self.is_down = False

    @property
    def paths(self) -> list[str]:
        return [call.path for call in self.server.calls]

    def respond(self, call: Call) -> Answer:
        if self.is_down:
            return Answer(is_cut=True)
        if call.path == "/.well-known/jwks.json":
            return Answer(body=json.dumps({"keys": [sample.public_key()]}).encode())
        return self.answer(call) or self.bundle()

    def bundle(self, **headers: str) -> Answer:
        body = sample.body(as_of=self.as_of, variant=self.variant)
        signed = {"Tollgauge-Signature": sample.signature(body), "ETag": '"1"'}
        return Answer(200, signed | headers, body)


def open_source(service: Service, cache: Path, **options: Any) -> RemoteBundle:
    key = options.pop("key", KEY)
    # TLS is not used, and loading the authorities takes longer than the rest of the test.
    return RemoteBundle(service.url, key, cache=cache, **{"verify": False} | options)


def keep(service: Service, cache: Path, **options: Any) -> Bundle | None:
    """The bundle once its file is written: `current` has it a moment earlier."""
    source = open_source(service, cache, **options)
    source.refresh()
    return source.current()


def test_first_use_waits_for_the_bundle_and_later_ones_use_it(
    service: Service, tmp_path: Path
) -> None:
    source = open_source(service, tmp_path)
    assert not source.is_ready()
    for _ in range(3):
        bundle = source.current()
        assert bundle is not None
        assert bundle.as_of == service.as_of
        assert source.is_ready()
    assert service.paths == ["/trust/bundle", "/.well-known/jwks.json"]


def test_key_is_fetched_and_compared_with_its_fingerprint(service: Service, tmp_path: Path) -> None:
    assert open_source(service, tmp_path, key=FINGERPRINT).current() is not None
    assert service.paths == ["/trust/bundle", "/.well-known/jwks.json"]
    with pytest.raises(SignatureError, match="another key than the pinned ones"):
        open_source(service, tmp_path, key=pin_keys("A" * 43)).refresh()


def test_cached_bundle_is_used_when_service_is_unreachable(
    service: Service, tmp_path: Path
) -> None:
    assert keep(service, tmp_path, key=FINGERPRINT) is not None
    service.is_down = True
    for key in (KEY, FINGERPRINT):
        bundle = open_source(service, tmp_path, key=key).current()
        assert bundle is not None
        assert bundle.as_of == service.as_of


def test_cached_bundle_of_another_key_is_not_used(service: Service, tmp_path: Path) -> None:
    assert keep(service, tmp_path) is not None
    service.is_down = True
    assert open_source(service, tmp_path, key=pin_keys("A" * 43)).current() is None


@pytest.mark.parametrize("damage", [b"", b"\n", b"{}\n", b"[]\nx", b"\xff" * 99, b"{" * 70_000])
def test_damaged_file_is_not_used(service: Service, tmp_path: Path, damage: bytes) -> None:
    keep(service, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage)
    assert keep(service, tmp_path) is not None
    file.write_bytes(damage)
    service.is_down = True
    assert open_source(service, tmp_path).current() is None


def test_service_that_never_answers_gives_no_bundle(service: Service, tmp_path: Path) -> None:
    service.is_down = True
    source = open_source(service, tmp_path)
    assert source.current() is None
    assert source.current() is None
    assert service.paths == ["/trust/bundle"]  # no second request immediately


def test_older_bundle_does_not_replace_newer_one(service: Service, tmp_path: Path) -> None:
    source = open_source(service, tmp_path)
    source.refresh()
    newest = service.as_of
    service.as_of -= 3_600
    source.refresh()
    bundle = source.current()
    assert bundle is not None
    assert bundle.as_of == newest
    service.is_down = True
    again = open_source(service, tmp_path).current()
    assert again is not None
    assert again.as_of == newest


def test_newer_bundle_replaces_it_and_unchanged_one_is_not_sent(
    service: Service, tmp_path: Path
) -> None:
    source = open_source(service, tmp_path)
    source.refresh()
    service.as_of += 30
    source.refresh()
    bundle = source.current()
    assert bundle is not None
    assert bundle.as_of == service.as_of
    service.answer = lambda _call: Answer(304)
    source.refresh()
    assert source.current() == bundle


def test_bundle_of_only_bad_endpoints_does_not_replace_a_complete_one(
    service: Service, tmp_path: Path
) -> None:
    source = open_source(service, tmp_path)
    source.refresh()
    newest, service.variant = service.as_of, "avoid"
    service.as_of += 30
    with pytest.raises(BundleError, match="its name does not state"):
        source.refresh()
    bundle = source.current()
    assert bundle is not None
    assert (bundle.variant, bundle.as_of) == ("all", newest)
    service.url += "/avoid?for=all"
    bad = open_source(service, tmp_path).current()
    assert bad is not None
    assert bad.variant == "avoid"


@pytest.mark.parametrize(
    "answer",
    [
        *(Answer(404), Answer(302, {"Location": "https://other.example.com/"}), Answer(200)),
        *(Answer(304), Answer(206), Answer(200, {"Tollgauge-Signature": "a..b"}, b"x" * 500)),
    ],
    ids=lambda answer: str(answer.status),
)
def test_other_response_is_not_a_bundle(service: Service, tmp_path: Path, answer: Answer) -> None:
    service.answer = lambda _call: answer
    assert open_source(service, tmp_path).current() is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(GuardError):
        open_source(service, tmp_path).refresh()


def test_too_long_body_is_not_read_completely(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SIZE_MAX", 100)
    with pytest.raises(BundleError, match="longer than 100"):
        open_source(service, tmp_path).refresh()


def test_payment_waits_at_most_for_its_timeout(service: Service, tmp_path: Path) -> None:
    released = threading.Event()

    def slow(_call: Call) -> Answer | None:
        released.wait(10)
        return None

    service.answer = slow
    source = open_source(service, tmp_path, timeout=0.05)
    assert source.current() is None
    assert source.is_ready() is False
    released.set()
    while not source.is_ready():
        source.current()
    bundle = source.current()
    assert bundle is not None
    assert bundle.as_of == service.as_of


def test_stale_bundle_is_used_until_a_newer_one_is_available(
    service: Service, tmp_path: Path
) -> None:
    service.as_of = NOW - 72 * 3_600
    open_source(service, tmp_path).refresh()
    service.is_down = True
    bundle = open_source(service, tmp_path).current()
    assert bundle is not None
    assert bundle.as_of == service.as_of  # its age is judged by the decision


def test_payments_continue_with_unwritable_cache_folder(service: Service, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert open_source(service, tmp_path / "file").current() is not None


def write(path: Path, as_of: int, variant: str = "all") -> None:
    body = sample.body(as_of=as_of, variant=variant)
    path.with_name(path.name + ".jws").write_text(sample.signature(body))
    path.write_bytes(body)
    os.utime(path, ns=(as_of, as_of))


def test_changed_file_is_read_again_and_used_only_if_it_verifies(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zst"
    write(path, NOW - 60)
    source = FileBundle(path, KEY)
    write(path, NOW - 30)
    assert source.current().as_of == NOW - 30
    path.write_bytes(b"forged")
    assert source.current().as_of == NOW - 30
    path.unlink()
    assert source.current().as_of == NOW - 30
    write(path, NOW - 90)
    assert source.current().as_of == NOW - 30
    write(path, NOW - 20, variant="avoid")
    assert source.current().as_of == NOW - 30
    write(path, NOW - 10)
    assert source.current().as_of == NOW - 10


def test_file_contains_the_variant_of_its_name(tmp_path: Path) -> None:
    for name, variant in (("bundle.zst", "all"), ("avoid.zst", "avoid"), ("my-avoid", "avoid")):
        write(tmp_path / name, NOW, variant=variant)
        assert FileBundle(tmp_path / name, KEY).current().variant == variant
    write(tmp_path / "bundle.zst", NOW, variant="avoid")
    with pytest.raises(BundleError, match="its name does not state"):
        FileBundle(tmp_path / "bundle.zst", KEY)


def test_forged_file_is_refused_immediately(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zst"
    write(path, NOW)
    path.write_bytes(sample.body(as_of=NOW + 1))
    with pytest.raises(GuardError, match="not signed by the pinned key"):
        open_guard(bundle=path, key=sample.public_key(), journal=":memory:")
    with pytest.raises(GuardError, match="must both be there"):
        open_guard(bundle=tmp_path / "none", key=sample.public_key(), journal=":memory:")


def test_bundle_given_as_bytes_is_verified() -> None:
    body = sample.body(as_of=NOW)
    signature = sample.signature(body)
    guard = open_guard(bundle=(body, signature), key=sample.public_key(), journal=":memory:")
    bundle = guard.bundles.current()
    assert bundle is not None
    assert bundle.as_of == NOW
    with pytest.raises(SignatureError):
        open_guard(bundle=(body + b"x", signature), key=sample.public_key(), journal=":memory:")


def test_bundle_without_key_is_not_used() -> None:
    with pytest.raises(SignatureError, match="Give the operator's public JWK"):
        open_guard(bundle="https://trust.example.com/trust/bundle", journal=":memory:")
