"""The documented signing procedure of sellers produces files that pass verification.

`cast` is not installed here. A program of the same name that signs in the same way (EIP-191)
replaces it, so that the arguments from the shell are tested.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.seller_files import HOST, NETWORK, NEW, announcement, file

from tollgauge.core.base.signature import recover_signer, text_digest
from tollgauge.core.directory import seller_file

PAGE = Path(__file__).resolve().parents[2] / "docs" / "seller-file.md"
KEY = "0x" + "11" * 32
CAST = """#!{python}
import sys
from eth_account import Account
from eth_account.messages import encode_defunct

command, flag, key, text = sys.argv[1:3] == ["wallet", "sign"], *sys.argv[3:]
assert command and flag == "--private-key", sys.argv
signature = Account.from_key(key).sign_message(encode_defunct(text=text)).signature
print("0x" + bytes(signature).hex())
"""


def blocks(kind: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return [text for language, text in fenced if language == kind]


def is_signed_by_the_old_payto(row: dict[str, Any]) -> bool:
    seller = seller_file.read(file(row), HOST)
    assert seller is not None
    assert seller.problems == ()
    (signed,) = seller.announcements
    assert signed.statement == announcement()
    signer = recover_signer(text_digest(signed.statement.text), signed.signature)
    return signer == announcement().before


def test_python_example_produces_a_valid_signature() -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[0], names)
    row = names["announce"](HOST, KEY, NEW.address, announcement().not_before)
    assert is_signed_by_the_old_payto(row)


def test_shell_example_produces_a_valid_signature(tmp_path: Path) -> None:
    (program,) = blocks("sh")
    cast = tmp_path / "cast"
    cast.write_text(CAST.format(python=sys.executable))
    cast.chmod(0o755)
    item = announcement()
    values = {
        "OLD_KEY": KEY,
        "HOST": item.host,
        "NETWORK": NETWORK,
        "FROM": item.before,
        "TO": item.after,
        "NOT_BEFORE": str(item.not_before),
    }
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", program],
        env={**os.environ, "PATH": path, **values},
        capture_output=True,
        text=True,
        check=True,
    )
    row = {
        "network": item.network,
        "from": item.before,
        "to": item.after,
        "notBefore": item.not_before,
        "signature": done.stdout.strip(),
    }
    assert is_signed_by_the_old_payto(row)


def test_python_example_signs_a_list_of_sites() -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[1], names)
    row = names["share"](["seller.dev", "other.com"], KEY)
    seller = seller_file.read(json.dumps({"payToSites": [row]}).encode(), HOST)
    assert seller is not None
    assert seller.problems == ()
    (signed,) = seller.site_lists
    assert signed.statement.sites == ("other.com", "seller.dev")
    signer = recover_signer(text_digest(signed.statement.text), signed.signature)
    assert signer == announcement().before


def test_displayed_list_is_the_signed_text() -> None:
    shown = next(block for block in blocks("") if block.startswith("x402 payTo sites"))
    row = next(json.loads(block) for block in blocks("json") if '"sites"' in block)
    row |= {"signature": "0x" + "00" * 65}
    seller = seller_file.read(json.dumps({"payToSites": [row]}).encode(), "api.example.com")
    assert seller is not None
    (signed,) = seller.site_lists
    assert signed.statement.text + "\n" == shown


def test_displayed_text_is_the_signed_text() -> None:
    shown = next(block for block in blocks("") if block.startswith("x402 payTo change"))
    row = next(json.loads(block) for block in blocks("json") if '"from"' in block)
    item = announcement(
        host="api.example.com", before=row["from"], after=row["to"], not_before=row["notBefore"]
    )
    assert item.text + "\n" == shown


def test_displayed_file_can_be_parsed() -> None:
    shown = next(block for block in blocks("json") if '"statement"' in block)
    file = seller_file.read(shown.encode(), "api.example.com")
    assert file is not None
    assert (file.contact, file.problems) == ("ops@api.example.com", ())


def test_documented_limits_match_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"up to {seller_file.STATEMENT_MAX} characters" in text
    assert f"up to {seller_file.CONTACT_MAX} characters" in text
    assert f"at most {seller_file.BYTES_MAX // 1024} KB" in text
    assert f"at most {seller_file.CHANGES_MAX};" in text
    assert f"at most {seller_file.LISTS_MAX};" in text
    assert f"1 to {seller_file.SITES_MAX} registrable domains" in text
    assert f"at most {seller_file.LIST_VALID_MAX_S // 86_400} days later" in text
    assert f"within {seller_file.ANNOUNCED_MS // 86_400_000} days" in text
