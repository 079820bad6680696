"""Configuration from a file and the environment; all problems are reported together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tollgauge.config import Config, ConfigError, find_unused, load
from tollgauge.config.settings import list_settings
from tollgauge.service_status import loops
from tollgauge.web.paid.products import trust

EXAMPLE = Path(__file__).resolve().parents[2] / "tollgauge.example.toml"
PAY_TO = "0x" + "ab" * 20
MEGA_USD = "0xfafddbb3fc7688494971a79cc65dca3ef82079e7"


def load_text(tmp_path: Path, text: str, **environment: str) -> Config:
    path = tmp_path / "tollgauge.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, environment)


def problems(tmp_path: Path, text: str, **environment: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, text, **environment)
    return caught.value.problems


def test_defaults_apply_without_a_file() -> None:
    assert load(None, {}) == Config()


def test_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert load_text(tmp_path, "") == Config()


def test_reads_values_of_every_kind_from_the_file(tmp_path: Path) -> None:
    config = load_text(
        tmp_path,
        f"""
[server]
base_url = "http://localhost:9000"
json_logs = true
[server.front]
free_per_minute = 7
trusted_proxies = ["127.0.0.1", "2001:db8::1"]
[sale]
pay_to = "{PAY_TO}"
[sale.prices]
"/v1/x402-trust" = "0.01"
[facilitator]
url = "https://facilitator.example.com/v2"
verify_timeout_s = 3
[egress]
ports = [80, 443, 8443]
ca_file = "{EXAMPLE}"
[egress.mapped]
"api.example.com" = ["127.0.0.1", 4443]
[probe]
references = ["https://www.example.com/"]
[probe.cadence]
every_ms = 60_000
[[sources]]
name = "one"
kind = "bazaar"
location = "https://directory.example.com/discovery/resources"
pause_ms = 10
[[sources]]
name = "two"
kind = "file"
location = "listing.json"
""",
    )
    assert config.server.json_logs is True
    assert config.server.front.free_per_minute == 7
    assert config.server.front.trusted_proxies == ("127.0.0.1", "2001:db8::1")
    assert trust.PRODUCT.dollars(config.sale) == "0.010000"
    assert config.facilitator.verify_timeout_s == 3.0
    assert config.egress.ports == frozenset({80, 443, 8443})
    assert config.egress.mapped == {"api.example.com": ("127.0.0.1", 4443)}
    assert config.egress.ca_file == str(EXAMPLE)
    assert config.probe.cadence.every_ms == 60_000
    assert config.probe.cadence.watched_every_ms == Config().probe.cadence.watched_every_ms
    assert [source.name for source in config.sources] == ["one", "two"]
    assert config.sources[0].pause_ms == 10


def test_environment_overrides_file(tmp_path: Path) -> None:
    config = load_text(
        tmp_path,
        '[server]\nport = 1\nhost = "::"\n[probe.cadence]\nevery_ms = 1_000_000\n',
        TOLLGAUGE_SERVER_PORT="9001",
        TOLLGAUGE_SERVER_JSON_LOGS="TRUE",
        TOLLGAUGE_SERVER_FRONT_FREE_PER_MINUTE="12",
        TOLLGAUGE_SERVER_FRONT_TRUSTED_PROXIES="127.0.0.1, 10.0.0.1",
        TOLLGAUGE_PROBE_CADENCE_EVERY_MS="2000000",
        TOLLGAUGE_EGRESS_PORTS="443,8443",
        TOLLGAUGE_EGRESS_CA_FILE=str(EXAMPLE),
        TOLLGAUGE_FACILITATOR_VERIFY_TIMEOUT_S="1.5",
    )
    assert (config.server.port, config.server.host) == (9001, "::")
    assert config.server.json_logs is True
    assert config.server.front.free_per_minute == 12
    assert config.server.front.trusted_proxies == ("127.0.0.1", "10.0.0.1")
    assert config.probe.cadence.every_ms == 2_000_000
    assert config.egress.ports == frozenset({443, 8443})
    assert config.egress.ca_file == str(EXAMPLE)
    assert config.facilitator.verify_timeout_s == 1.5


def test_database_url_variable_is_accepted() -> None:
    assert load(None, {"DATABASE_URL": "sqlite:///a"}).store.url == "sqlite:///a"
    both = {"DATABASE_URL": "sqlite:///a", "TOLLGAUGE_STORE_URL": "sqlite:///b"}
    assert load(None, both).store.url == "sqlite:///b"


def test_several_nodes_are_separated_by_commas() -> None:
    names = {
        "TOLLGAUGE_CHAINS_8453_NODES": " http://a , http://b,",
        "TOLLGAUGE_CHAINS_137_NODES": "",
    }
    config = load(None, names)
    (chain,) = config.chains
    assert (chain.network, chain.nodes) == ("eip155:8453", ("http://a", "http://b"))
    assert config.sale_chain == chain
    assert find_unused(names) == []


def test_nodes_of_solana_have_variables_with_its_name() -> None:
    names = {
        "TOLLGAUGE_CHAINS_SOLANA_NODES": "http://a",
        "TOLLGAUGE_CHAINS_SOLANA_DEVNET_NODES": "http://b",
    }
    config = load(None, names)
    assert {chain.network: (chain.nodes, chain.chain_id) for chain in config.indexed_chains} == {
        "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp": (("http://a",), -101),
        "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1": (("http://b",), -103),
    }
    assert find_unused(names) == []
    assert loops(config)[-2:] == ("index-solana-devnet", "index-solana")


def test_nodes_of_listed_chains_come_from_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "tollgauge.toml"
    path.write_text(
        '[[chains]]\nnetwork = "eip155:137"\n'
        '[[chains]]\nnetwork = "eip155:10"\nindex = false\n'
        '[[chains]]\nnetwork = "eip155:1"\n'
    )
    secret = tmp_path / "nodes"
    secret.write_text("http://polygon\n")
    names = {
        "TOLLGAUGE_CHAINS_137_NODES_FILE": str(secret),
        "TOLLGAUGE_CHAINS_10_NODES": "http://optimism",
        "TOLLGAUGE_CHAINS_42161_NODES": "http://arbitrum",
    }
    config = load(path, names)
    assert find_unused(names) == []
    assert {chain.network: chain.nodes for chain in config.chains} == {
        "eip155:137": ("http://polygon",),
        "eip155:10": ("http://optimism",),
        "eip155:1": (),
        "eip155:42161": ("http://arbitrum",),
    }
    indexed = [chain.network for chain in config.indexed_chains]
    assert indexed == ["eip155:137", "eip155:42161"]
    assert config.sale_chain is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('network = "solana:main"', "must be eip155: and the number of an EVM chain"),
        ('network = "eip155:56"', "has no known dollar token: set index = false"),
        ('network = "eip155:1"\n[[chains]]\nnetwork = "eip155:1"', "names must be unique"),
        ('network = "eip155:1"\nnodes = ["http://a"]', "set TOLLGAUGE_CHAINS_1_NODES instead"),
    ],
)
def test_unusable_chain_is_rejected(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "tollgauge.toml"
    path.write_text(f"[[chains]]\n{text}\n")
    with pytest.raises(ConfigError, match=re.escape(problem)):
        load(path, {})


def test_secret_is_read_from_the_file_named_by_a_variable(tmp_path: Path) -> None:
    key, database = tmp_path / "watch_key", tmp_path / "database_url"
    key.write_text("k" * 32 + "\n")
    database.write_text("postgresql://me:hunter2@host/db\n")
    names = {"TOLLGAUGE_WATCH_KEY_FILE": str(key), "DATABASE_URL_FILE": str(database)}
    config = load(None, names)
    assert config.watch.key == "k" * 32
    assert config.store.url == "postgresql://me:hunter2@host/db"
    assert find_unused(names) == []


def test_empty_secret_file_sets_no_secret(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("\n")
    names = {
        "TOLLGAUGE_CHAINS_8453_NODES_FILE": str(tmp_path / "nodes"),
        "TOLLGAUGE_WATCH_KEY_FILE": "",
    }
    assert load(None, names) == Config()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (
            {"TOLLGAUGE_WATCH_KEY_FILE": "gone", "OTHER": "x"},
            "TOLLGAUGE_WATCH_KEY_FILE: gone cannot be read: No such file or directory",
        ),
        (
            {"TOLLGAUGE_WATCH_KEY_FILE": str(EXAMPLE), "TOLLGAUGE_WATCH_KEY": "hunter2" * 5},
            "TOLLGAUGE_WATCH_KEY and TOLLGAUGE_WATCH_KEY_FILE are both set: keep one",
        ),
        ({"TOLLGAUGE_SERVER_PORT_FILE": "x"}, "TOLLGAUGE_SERVER_PORT_FILE (environment) is not a"),
    ],
)
def test_unusable_secret_file_is_named(environment: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, environment)
    (problem,) = caught.value.problems
    assert problem.startswith(expected)


def test_facilitator_headers_come_from_the_environment() -> None:
    text = "Authorization: Bearer a:b; X-Key:  c \n X-Other: d"
    settings = load(None, {"TOLLGAUGE_FACILITATOR_HEADERS": text}).facilitator
    assert settings.headers == (
        ("Authorization", "Bearer a:b"),
        ("X-Key", "c"),
        ("X-Other", "d"),
    )
    assert "Bearer" not in repr(settings)


def test_reports_all_configuration_errors_together(tmp_path: Path) -> None:
    messages = problems(
        tmp_path,
        """
nonsense = 1
[server]
port = "8402"
prot = 1
[server.front]
free_per_minute = 0
[probe]
wave = true
[probe.cadence]
every = 5
watched_every_ms = 0
[egress]
ports = [80, "443"]
[egress.mapped]
"a.example.com" = ["10.0.0.1", 1]
[facilitator]
url = "facilitator"
[[sources]]
name = "x"
kind = "carrier-pigeon"
location = "y"
[[sources]]
kind = "file"
[unknown]
""",
        TOLLGAUGE_SCORE_BATCH="many",
        TOLLGAUGE_SERVER_HOSTS="x",
    )
    text = "\n".join(messages)
    for expected in (
        "nonsense is not a section",
        "unknown is not a section",
        "server.port must be a whole number",
        "server.prot is not a setting",
        "server.front.free_per_minute must be above 0",
        "probe.wave must be a whole number",
        "probe.cadence.every is not a setting",
        "probe.cadence.watched_every_ms must be at least 1000",
        "egress.ports[1] must be a whole number",
        "egress.mapped.a.example.com[0]: 10.0.0.1 is not a loopback",
        "facilitator.url: must be an http:// or https:// URL",
        "sources[0].kind must be one of 'bazaar', 'openapi' or 'file'",
        "sources[1].name is missing",
        "sources[1].location is missing",
        "score.batch must be a whole number",
        "TOLLGAUGE_SERVER_HOSTS (environment) is not a setting",
    ):
        assert expected in text, expected
    assert len(messages) == 16, text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[server]\nbase_ur = 1\n", "server.base_ur is not a setting; did you mean base_url?"),
        ("[probe.cadence]\nevery = 1\n", "is not a setting; did you mean every_ms?"),
        ("[source]\n", "source is not a section; did you mean sources?"),
        ("[[sources]]\nnam = 1\n", "sources[0].nam is not a setting; did you mean name?"),
        ("[zebra]\n", "zebra is not a section"),
    ],
)
def test_misspelled_setting_gets_a_suggestion(tmp_path: Path, text: str, expected: str) -> None:
    assert any(problem.endswith(expected) for problem in problems(tmp_path, text))


def test_problem_is_reported_once(tmp_path: Path) -> None:
    """An unreadable section keeps its defaults, which cause no further problems."""
    messages = problems(
        tmp_path, f'[sale]\npay_to = "{PAY_TO}"\n[facilitator]\nurl = 7\n', OTHER="x"
    )
    assert messages == ("facilitator.url must be a string",)


@pytest.mark.parametrize("path", [s.path for s in list_settings(Config) if s.secret])
def test_secrets_are_rejected_in_the_file(tmp_path: Path, path: str) -> None:
    section, _, key = path.partition(".")
    (message,) = problems(tmp_path, f'[{section}]\n{key} = "hunter2"\n')
    assert message.startswith(f"{path} is a secret: set TOLLGAUGE_{section.upper()}_{key.upper()}")
    assert "hunter2" not in message


def test_database_password_is_rejected_in_the_file(tmp_path: Path) -> None:
    text = '[store]\nurl = "postgresql://me:hunter2@host/db"\n'
    (message,) = problems(tmp_path, text)
    assert message == "store.url contains a password: set DATABASE_URL instead"
    assert load_text(tmp_path, '[store]\nurl = "postgresql://me@host/db"\n').store.url
    assert load(None, {"DATABASE_URL": "postgresql://me:hunter2@host/db"}).store.url


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[server\n", "is not TOML"),
        ("server = 1\n", "server must be a table"),
        ("sources = 1\n", "sources must be a list"),
        ("[sources]\n", "sources must be a list"),
        ("[egress]\nresolver = 1\n", "egress.resolver is not a setting"),
        ('[egress.mapped]\n"a.example.com" = "127.0.0.1"\n', "must be a list"),
        (
            '[egress.mapped]\n"a.example.com" = ["127.0.0.1"]\n',
            "a.example.com[1] is missing",
        ),
        ("[[chains]]\nnetwork = 'eip155:1'\ntimeout_s = inf\n", "chains[0].timeout_s"),
        (
            "[facilitator]\nsettle_timeout_s = nan\n",
            "settle_timeout_s must be at most 80",
        ),
        ('[server]\nbase_url = "trust.example.com"\n', "server.base_url: must be"),
        ("[server]\nport = 65536\n", "server.port must be at most 65535"),
        ("[server]\nport = 8403\n", "server: port and admin_port must differ"),
        ('[sale.prices]\n"/v1/x402-trust" = "0"\n', "sale.prices: "),
        ('[sale.prices]\n"/v1/other" = "1"\n', "sale.prices: "),
        ("[probe]\nlease_ms = 20_000\n", "probe.lease_ms must be at least 5 times"),
        ('[probe]\nreferences = ["http://example.com"]\n', "probe.references: "),
        ('[sale]\npay_to = "0x12"\n', "sale.pay_to: must be an address"),
        (f'[sale]\npay_to = "{PAY_TO}"\n', "facilitator.url is not"),
        ('[sale]\nasset = "0x00"\n', "sale: asset is not native USDC"),
        (f'[sale]\nnetwork = "eip155:4326"\nasset = "{MEGA_USD}"\n', "not native USDC"),
        ("[score]\nmax_age_ms = 86_400_001\n", "score.max_age_ms must be at most 86400000"),
    ],
)
def test_invalid_value_is_named(tmp_path: Path, text: str, expected: str) -> None:
    assert any(expected in problem for problem in problems(tmp_path, text))


def test_mapped_names_require_a_loopback_base_url(tmp_path: Path) -> None:
    mapped = '[egress.mapped]\n"a.example.com" = ["127.0.0.1", 4443]\n'
    assert load_text(tmp_path, mapped).egress.mapped
    public = '[server]\nbase_url = "https://trust.example.com"\n' + mapped
    assert any("loopback" in problem for problem in problems(tmp_path, public))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("TOLLGAUGE_SERVER_PORT", "", "server.port must be a whole number"),
        ("TOLLGAUGE_SERVER_JSON_LOGS", "perhaps", "server.json_logs must be true or false"),
        ("TOLLGAUGE_FACILITATOR_HEADERS", "novalue", "must be lines of the form"),
        ("TOLLGAUGE_EGRESS_PORTS", "80,x", "egress.ports.1. must be a whole number"),
        ("TOLLGAUGE_EGRESS_USER_AGENT", "caf\udce9", "egress.user_agent: must be printable ASCII"),
        ("TOLLGAUGE_EGRESS_MAPPED", "a", "egress.mapped must be a table in the file"),
        ("TOLLGAUGE_PROBE_CADENCE_EVERY", "1", "is not a setting"),
    ],
)
def test_invalid_environment_value_is_named(name: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load(None, {name: value})


def test_unrelated_environment_variables_are_ignored() -> None:
    """Kubernetes sets its own variables for a service that is called tollgauge."""
    environment = {
        "TOLLGAUGE_CONFIG": "x.toml",
        "TOLLGAUGE_PORT": "tcp://10.0.0.1:8402",
        "TOLLGAUGE_SERVICE_HOST": "10.0.0.1",
        "PATH": "/bin",
    }
    assert load(None, environment) == Config()


def test_missing_file_is_one_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "missing.toml", {})
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, {})
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(binary, {})


def test_missing_file_differs_from_invalid_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as missing:
        load(tmp_path / "gone.toml", {"TOLLGAUGE_SERVER_PORT": "high"})
    assert missing.value.unread
    assert len(missing.value.problems) == 2, "the environment is checked too"
    with pytest.raises(ConfigError) as wrong:
        load_text(tmp_path, "[nonsense]\n")
    assert not wrong.value.unread


@pytest.mark.parametrize(
    ("environment", "base_url"),
    [
        ({}, "http://127.0.0.1:8402"),
        ({"TOLLGAUGE_SERVER_PORT": "9000"}, "http://127.0.0.1:9000"),
        ({"TOLLGAUGE_SERVER_HOST": "0.0.0.0"}, "http://127.0.0.1:8402"),
        ({"TOLLGAUGE_SERVER_HOST": "192.0.2.7"}, "http://192.0.2.7:8402"),
        ({"TOLLGAUGE_SERVER_HOST": "2001:db8::7"}, "http://[2001:db8::7]:8402"),
        (
            {"TOLLGAUGE_SERVER_PORT": "9000", "TOLLGAUGE_SERVER_BASE_URL": "https://trust.test"},
            "https://trust.test",
        ),
    ],
)
def test_base_url_defaults_to_the_listening_address(
    environment: dict[str, str], base_url: str
) -> None:
    assert load(None, environment).server.base_url == base_url


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        ("[sale]\ntimeout_seconds = 55\n", {}, "sale.timeout_seconds must be above 55"),
        ("[egress]\nwire_cap = 0\n", {}, "egress.wire_cap must be above 0"),
        ("[egress]\nports = [443, 0]\n", {}, "egress.ports[1] must be at least 1"),
        (
            '[egress]\nca_file = "gone.pem"\n',
            {},
            "egress.ca_file: the file gone.pem does not exist",
        ),
        ('[probe]\nreferences = ["https://localhost/"]\n', {}, "localhost is not a public name"),
        (
            "",
            {"TOLLGAUGE_CHAINS_8453_NODES": "node.example.com"},
            "chains[0].nodes[0]: must be an http:// or https://",
        ),
        (
            "",
            {"TOLLGAUGE_CHAINS_137_NODES": "https://one.example.com,ws://secret"},
            "chains[0].nodes[1]: must be an http://",
        ),
        (
            "",
            {"DATABASE_URL": "mysql://me:secret@host/db"},
            "store: The database 'mysql' is not supported. Use",
        ),
        ("", {"DATABASE_URL": "postgresql://host/db?junk=1"}, "unsupported parameters: junk"),
        (
            '[[sources]]\nname = "a"\nkind = "bazaar"\nlocation = "http://a.example.com"\n',
            {},
            (
                "sources[0]: The location of a is not an https:// URL. "
                "Only the kind file accepts a path."
            ),
        ),
        (
            '[[sources]]\nname = "a"\nkind = "file"\nlocation = "a"\n' * 2,
            {},
            "sources: 2 are named 'a'; names must be unique",
        ),
    ],
)
def test_invalid_configuration_is_rejected_before_startup(
    tmp_path: Path, text: str, environment: dict[str, str], expected: str
) -> None:
    (message,) = problems(tmp_path, text, **environment)
    assert expected in message
    assert "secret" not in message


def test_misspelled_environment_variable_is_reported() -> None:
    names = {
        "TOLLGAUGE_WACTH_KEY": "secret",
        "TOLLGAUGE_PORT_8402_TCP": "tcp://10.0.0.1:8402",
        "TOLLGAUGE_WATCH_KEY": "k" * 32,
        "TOLLGAUGE_CONFIG": "tollgauge.toml",
        "PATH": "/bin",
    }
    load(None, names)
    port, key = find_unused(names)
    assert port == "TOLLGAUGE_PORT_8402_TCP (environment) is not a setting and changes nothing"
    assert key.endswith("changes nothing; did you mean TOLLGAUGE_WATCH_KEY?")


def test_vantage_must_be_one_of_the_configured_names(tmp_path: Path) -> None:
    probe = load_text(
        tmp_path, '[probe]\nvantage = "us-iad"\nvantages = ["eu-fra", "us-iad"]\n'
    ).probe
    assert probe.places.primary == "eu-fra"
    assert not probe.places.is_primary
    (problem,) = problems(tmp_path, '[probe]\nvantage = "here"\nvantages = ["eu-fra"]\n')
    assert "'here' is not in vantages" in problem
    (problem,) = problems(tmp_path, '[probe]\nvantages = ["default", "default"]\n')
    assert "contains a name twice" in problem
    (problem,) = problems(tmp_path, '[probe]\nvantage = "EU Frankfurt"\n')
    assert "probe.vantage" in problem
