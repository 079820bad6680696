"""The guard for TypeScript: its types, its own tests, its package, and what all guards share."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from eth_abi.abi import encode
from guard.cases import resource_cases
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support.paying_clients import payer_of
from tests.support.programs import report_missing, require
from tests.support.sellers import entry
from x402.schemas import PaymentPayload, PaymentRequired

from tollgauge.core.endpoint.identity import ResourceError, parse_resource
from tollgauge.core.endpoint.terms import KnownOffer
from tollgauge.core.guard.bundle import BundleDraft, TrustRecord, Variant
from tollgauge.core.sale.signature import SigningKey, private_jwk
from tollgauge.demo.chain import NETWORK, Chain, TestAccount, run_chain
from tollgauge.demo.envelopes import USDC
from tollgauge_guard import defaults
from tollgauge_guard.decision import Refuse
from tollgauge_guard.journal import Journal, Reserved
from tollgauge_guard.offer import Terms
from tollgauge_guard.payment import Event, State
from tollgauge_guard.policy import Policy
from tollgauge_guard.purchase_key import Purchase, account_id, given_key

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "guard" / "typescript"
COMPILER = PACKAGE / "node_modules" / ".bin" / "tsc"
SCHEDULES_WALLET = "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A"  # signs in the fault schedules
FIND_ALL = """
import { readFileSync } from "node:fs";
import { Bundle, parseResource } from "@tollgauge/guard";
const [path, signature, key] = process.argv.slice(1);
const bundle = Bundle.open(readFileSync(path), signature, JSON.parse(key));
const resources = JSON.parse(readFileSync(0, "utf8"));
const records = resources.map((resource) => bundle.find(parseResource(resource)));
const values = ({ recommendation, score, offers: [offer] }) =>
  [recommendation, score, offer.payTo, String(offer.amount)];
console.log(JSON.stringify(records.map(values)));
"""
ANSWER_LINES = """
import { createInterface } from "node:readline";
import { parseResource } from "@tollgauge/guard";
import { NodeReader } from "./dist/nodes.js";
const canonical = (url) => parseResource(url)?.url ?? null;
const evidence = async (node, { exposure, ...payment }) => {
  const reader = new NodeReader({ [payment.network]: node });
  return (await reader.read({ ...payment, exposure: BigInt(exposure) })).evidence;
};
for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...values] = JSON.parse(line);
  console.log(JSON.stringify(await { canonical, evidence }[name](...values)));
}
"""
DEFAULT_FILES = """
import * as files from "./dist/defaults.js";
for (const base of JSON.parse(process.argv[1])) {
  Object.assign(process.env, { XDG_STATE_HOME: base, XDG_CACHE_HOME: base });
  console.log(files.journalFile(), files.cacheFolder());
}
"""
RESERVE = """
import { randomBytes } from "node:crypto";
import { Journal, policyOf } from "@tollgauge/guard";
const [path, purchase, terms, payer, limit, now] = process.argv.slice(1);
const { amount, exposed, exposure, ...rest } = JSON.parse(terms);
const money = { amount: BigInt(amount), exposed: BigInt(exposed), exposure: BigInt(exposure) };
const policy = policyOf({ maxDay: BigInt(limit) });
const journal = new Journal(path);
const asked = { ...rest, ...money };
const found = journal.reserve(JSON.parse(purchase), asked, payer, policy, Number(now));
console.log(found === null ? "unfinished" : (found.code ?? "reserved"));
if (found !== null && found.code === undefined) {
  const nonce = `0x${randomBytes(32).toString("hex")}`;
  journal.sign(found.id, { nonce, validBefore: Number(now) + 60 }, "cGF5bG9hZA==", Number(now));
  journal.change(found.id, "send", Number(now));
}
"""
TRANSFER = "0xcf092995"
"""`transferWithAuthorization` with the signature as bytes (FiatTokenV2_2)."""

NOW = 1_790_000_000_000
"""The time of the tests (ms UTC)."""

pytestmark = pytest.mark.node


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """The package as its sources are now."""
    require("npm")
    if not COMPILER.exists():
        report_missing("the locked npm packages are missing: run `make setup`")
    run("bash", str(ROOT / "scripts" / "setup.sh"), "typescript_guard")


def run(*command: str, text: str = "", **variables: str) -> str:
    """Run a program in the package's folder and return its output. A failure shows all of it."""
    program, *words = command
    path = require(program) if program in ("node", "npm") else program
    process = subprocess.run(
        (path, *words),
        cwd=PACKAGE,
        env=os.environ | variables,
        input=text,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_types_match_the_official_clients() -> None:
    run(str(COMPILER), "--noEmit", "-p", "tsconfig.test.json")


@pytest.mark.usefixtures("one_day", "anvil")
@pytest.mark.asyncio
async def test_typescript_tests_pass_with_schedules_on_anvil() -> None:
    """TOLLGAUGE_SCHEDULES_ON_ANVIL sets their number; half are of each official seller."""
    async with run_chain() as chain:
        await chain.mint(SCHEDULES_WALLET, 10**9)
        command = ("node", "--test-reporter=tap", "test/all.mjs")
        report = await asyncio.to_thread(run, *command, TOLLGAUGE_ANVIL=chain.rpc_url)
    # A file that cannot be loaded is not among the failed tests that Node counts.
    assert re.findall("^ *not ok.*", report, re.MULTILINE) == []
    assert "# skipped 0" in report
    assert f"# suites {len([*(PACKAGE / 'test').glob('*.test.mjs')])}" in report
    assert re.search(r"# pass [1-9]", report)
    assert len(re.findall(r"\d+ schedules, .*: 0 violations", report)) == 4


def test_licence_equals_that_of_the_repository() -> None:
    assert (PACKAGE / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_shared_resources_equal_those_of_the_service() -> None:
    assert resource_cases.FILE.read_text() == resource_cases.document()


def test_reads_the_bundle_that_the_service_builds(tmp_path: Path) -> None:
    records = [trust_record(number) for number in range(2_000)]
    draft = BundleDraft(policy_version=3, as_of=NOW)
    for record in records:
        draft.add(record)
    built = draft.build(Variant.ALL)
    file = tmp_path / "bundle.zst"
    file.write_bytes(built.body)
    key = SigningKey.of(json.dumps(private_jwk(bytes(32))))
    signature = key.sign(built.body, "tollgauge-bundle", NOW // 1000)
    script = ("--input-type=module", "--eval", FIND_ALL, str(file))
    resources = json.dumps([record.resource for record in records])
    seen = run("node", *script, signature, json.dumps(key.public.jwk), text=resources)
    assert json.loads(seen) == [
        [
            *(record.recommendation, (record.score_tenths or 0) / 10),
            *(record.offers[0].pay_to, str(record.offers[0].amount)),
        ]
        for record in records
    ]


def trust_record(number: int) -> TrustRecord:
    """A record whose values differ from those of other numbers."""
    return TrustRecord(
        resource=f"https://api.example.com/{number}",
        recommendation=("proceed", "caution", "avoid")[number % 3],
        grade="ABCDF"[number % 5],
        score_tenths=number % 1_001,
        offers=(KnownOffer("eip155:8453", "exact", f"0x{number:040x}", number + 1),),
        flags=("delivers",),
        as_of=NOW,
    )


@pytest.fixture(scope="module")
def ask_guard() -> Iterator[Callable[..., object]]:
    """Call a function of ANSWER_LINES with JSON values and return its result."""
    process = subprocess.Popen(
        [require("node"), "--input-type=module", "--eval", ANSWER_LINES],
        cwd=PACKAGE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    questions, answers = process.stdin, process.stdout
    assert questions is not None
    assert answers is not None

    def ask(name: str, *values: object) -> object:
        questions.write(json.dumps([name, *values]) + "\n")
        questions.flush()
        answer: object = json.loads(answers.readline())
        return answer

    yield ask
    questions.close()
    assert process.wait(60) == 0
    answers.close()


PAYER = "0x" + "11" * 20
TERMS = Terms(
    scheme="exact",
    method="eip3009",
    network=NETWORK,
    asset=USDC.lower(),
    amount=600,
    exposed=600,
    exposure=600,
    pay_to="0x" + "22" * 20,
    timeout=60,
    domain_name="USD Coin",
    domain_version="2",
)


def buy(name: str) -> Purchase:
    """A purchase with a given key by one account."""
    return Purchase(
        account=account_id([PAYER]),
        wallets=(PAYER,),
        session="session",
        key=given_key(name),
        host="api.example.com",
        resource="https://api.example.com/",
        url_digest="",
    )


def reserve_in_typescript(path: Path, purchase: Purchase, limit: int, now: int) -> str:
    """Reserve TERMS, sign and send; return the state, the refusal's code or `unfinished`."""
    purchase_json, terms_json = (
        json.dumps(
            {
                re.sub("_(.)", lambda part: part[1].upper(), name): value
                for name, value in asdict(fields).items()
            }
        )
        for fields in (purchase, TERMS)
    )
    words = (purchase_json, terms_json, PAYER, str(limit), str(now))
    return run("node", "--input-type=module", "--eval", RESERVE, str(path), *words).strip()


def test_default_files_are_those_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    bases = ["/srv/agent", "relative", ""]
    expected = []
    for base in bases:
        for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
            monkeypatch.setenv(variable, base)
        expected.append(f"{defaults.journal_file()} {defaults.cache_folder()}")
    printed = run("node", "--input-type=module", "--eval", DEFAULT_FILES, json.dumps(bases))
    assert printed.splitlines() == expected


def test_journal_is_shared_with_python(tmp_path: Path) -> None:
    path, now, policy = tmp_path / "journal.sqlite", NOW // 1000, Policy(max_day=1_800)
    journal = Journal(path)
    assert isinstance(journal.reserve(buy("python"), TERMS, PAYER, policy, now), Reserved)

    # A payment that this process has reserved blocks its purchase, and counts.
    assert reserve_in_typescript(path, buy("python"), 1_800, now) == "unfinished"
    assert reserve_in_typescript(path, buy("other"), 1_199, now) == "over-day-budget"
    assert reserve_in_typescript(path, buy("typescript"), 1_800, now) == "reserved"

    # A payment of a process that has ended blocks its purchase here as well.
    assert journal.reserve(buy("typescript"), TERMS, PAYER, policy, now) is None
    (sent,) = journal.find_unresolved()
    assert (sent.state, sent.payload) == (State.IN_FLIGHT, "cGF5bG9hZA==")
    assert isinstance(journal.reserve(buy("third"), TERMS, PAYER, policy, now), Reserved)
    refusal = journal.reserve(buy("fourth"), TERMS, PAYER, policy, now)
    assert isinstance(refusal, Refuse)
    assert refusal.code == "over-day-budget"
    assert journal.change(sent.id, Event.PROCESS_DIED, now)
    assert journal.change(sent.id, Event.CHAIN_DEAD, now)
    assert reserve_in_typescript(path, buy("fourth"), 1_800, now) == "reserved"


LABELS = st.text(st.sampled_from("abzAZ09-_éßωЖ日．"), min_size=1, max_size=6)
HOSTS = st.lists(LABELS, min_size=1, max_size=3).map(lambda labels: ".".join([*labels, "com"]))
PIECES = st.sampled_from(["/", ".", "..", "%2e", "%2F", "%41", "%", "a", "~", "é", "|", '"', ":"])
PATHS = st.lists(PIECES, max_size=8).map("".join)
ENDS = st.sampled_from(["", "?", "?a=%", "#x", "?a/../b#/.."])


@given(host=HOSTS, dot=st.sampled_from(["", "."]), path=PATHS, end=ENDS)
def test_canonical_resource_equals_that_of_the_service(
    ask_guard: Callable[..., object], host: str, dot: str, path: str, end: str
) -> None:
    url = f"https://{host}{dot}/{path}{end}"
    try:
        expected = parse_resource(url).url
    except ResourceError:
        assume(condition=False)
    assert ask_guard("canonical", url) == expected


@pytest.mark.usefixtures("anvil")
@pytest.mark.asyncio
async def test_node_shows_whether_authorization_is_used_or_dead(
    ask_guard: Callable[..., object],
) -> None:
    async with run_chain() as chain:

        async def evidence(payment: PaymentPayload) -> object:
            known = describe(payment)
            return await asyncio.to_thread(ask_guard, "evidence", chain.rpc_url, known)

        account = chain.accounts[1]
        used, small, large = [await sign(account, amount) for amount in (10_000, 10_000, 1_000_001)]
        assert [await evidence(payment) for payment in (used, small)] == ["unused"] * 2
        await chain.mint(account.address, 10_000)
        await settle(chain, used)
        assert await evidence(used) == "used"
        await chain.rpc("evm_increaseTime", 120)
        await chain.rpc("anvil_mine", hex(12))
        assert await evidence(small) == "unused"
        await chain.rpc("anvil_mine", hex(1))
        assert [await evidence(payment) for payment in (small, large)] == ["dead", "unused"]
        await chain.rpc("anvil_mine", hex(128))
        assert [await evidence(payment) for payment in (used, large)] == ["used", "dead"]


async def sign(account: TestAccount, amount: int) -> PaymentPayload:
    """A payment of an amount of atomic USDC that is valid for 60 seconds."""
    offer = entry("known", amount)
    document = {"x402Version": 2, "resource": {"url": "https://x.example/"}, "accepts": [offer]}
    required = PaymentRequired.model_validate(document)
    payload = await payer_of(account).create_payment_payload(required)
    assert isinstance(payload, PaymentPayload)
    return payload


async def settle(chain: Chain, payment: PaymentPayload) -> None:
    """Take the money of a payment, as anyone can who holds it."""
    given = payment.payload["authorization"]
    numbers = [int(given[name]) for name in ("value", "validAfter", "validBefore")]
    nonce, signature = (
        bytes.fromhex(text[2:]) for text in (given["nonce"], payment.payload["signature"])
    )
    kinds = ["address", "address", *["uint256"] * 3, "bytes32", "bytes"]
    values = [given["from"], given["to"], *numbers, nonce, signature]
    data = TRANSFER + encode(kinds, values).hex()
    call = {"from": chain.accounts[2].address, "to": USDC, "data": data}
    await chain.check(await chain.send([call]))


def describe(payment: PaymentPayload) -> dict[str, object]:
    """Return what the guard's journal contains about a payment."""
    given = payment.payload["authorization"]
    return {
        "network": NETWORK,
        "asset": USDC.lower(),
        "payer": given["from"].lower(),
        "nonce": given["nonce"],
        "validBefore": int(given["validBefore"]),
        "exposure": given["value"],
        "scheme": "exact",
        "method": "eip3009",
    }
