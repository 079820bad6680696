"""The blackbox exporter that probing is benchmarked against, and the seller that both probe."""

from __future__ import annotations

import base64
from pathlib import Path

import orjson
import pytest

from bench import blackbox
from bench.seller import envelope, header, run_seller, url
from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.exchange import Answer, Exchange


async def test_blackbox_exporter_verifies_certificate_of_seller(tmp_path: Path) -> None:
    async with run_seller(tmp_path, hosts=2) as seller:
        (tmp_path / "trusted").mkdir()
        async with blackbox.start(tmp_path / "trusted", seller) as exporter:
            assert 0 <= await exporter.exchanges(4) < 1
        seller.ca_file.write_text("")
        async with blackbox.start(tmp_path, seller) as exporter:
            with pytest.raises(RuntimeError, match="a failure"):
                await exporter.exchanges(1)


def test_every_host_of_seller_serves_valid_envelope() -> None:
    assert orjson.loads(base64.b64decode(header(7))) == envelope(7) != envelope(8)
    headers = (("payment-required", header(7)), ("cache-control", "no-store"))
    answer = Answer(status=402, headers=headers, body=b"{}")
    judged = lint(Exchange(url=url(7), method="GET", at=0, result=answer))
    assert judged.payable
    assert judged.compliant
    assert len(header(7)) in range(1_700, 2_300)
