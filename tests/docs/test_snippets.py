"""The programs in the documents are those of the docs page, which
tests/system/test_docs_snippets.py runs.
"""

from __future__ import annotations

from pathlib import Path

from tollgauge.web.pages import snippets
from tollgauge.web.pages.snippets import LOST, Language

ROOT = Path(__file__).parents[2]
NETWORK = "eip155:8453"


def test_readme_buys_as_the_docs_page_does() -> None:
    program = snippets.buy(
        Language.PYTHON,
        "http://127.0.0.1:8402/v1/x402-trust",
        {"resource": "https://weather.example/v1/current"},
        network=NETWORK,
    )
    assert f"```python\n{program}\n```" in (ROOT / "README.md").read_text()


def test_client_that_loses_no_payment_is_that_of_the_docs_page() -> None:
    program = snippets.fill_in(
        LOST[Language.PYTHON],
        'os.environ["TOLLGAUGE_URL"] + "/v1/x402-trust"',
        '{"resource": os.environ.get("RESOURCE", "https://weather.example/v1/current")}',
        NETWORK,
    )
    assert f"```python\n{program}\n```" in (ROOT / "docs" / "clients.md").read_text()
