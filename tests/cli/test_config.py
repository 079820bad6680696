"""`init` and `config check`, which reports all problems together and gives advice."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import Command
from tests.support.http_service import PAY_TO


def test_config_check_reports_all_problems_together(tollgauge: Command, tmp_path: Path) -> None:
    good = tollgauge("config", "check")
    assert good.code == 0
    assert "sells nothing" in good.out
    (tmp_path / "tollgauge.toml").write_text(
        '[server]\nprot = 1\n[[chains]]\nnetwork = "eip155:8453"\nnodes = "https://key@node"\n'
        '[probe.cadence]\nevery_ms = "x"\n'
    )
    bad = tollgauge("config", "check", TOLLGAUGE_SERVER_PORT="high")
    assert (bad.code, bad.out) == (1, "")
    for words in (
        "server.prot is not a setting",
        "chains[0].nodes is a secret: set TOLLGAUGE_CHAINS_8453_NODES instead",
        "probe.cadence.every_ms must be a whole number",
        "server.port must be a whole number",
    ):
        assert words in bad.err
    assert "key@node" not in bad.err
    as_json = tollgauge("config", "check", "--json", TOLLGAUGE_SERVER_PORT="high")
    assert (as_json.code, as_json.err) == (1, "")
    assert as_json.json["good"] is False
    assert all(f"- {problem}" in bad.err for problem in as_json.json["problems"])
    assert len(as_json.json["problems"]) == 4


def test_config_check_gives_advice(tollgauge: Command) -> None:
    as_text = tollgauge("config", "check", TOLLGAUGE_WACTH_KEY="hunter2")
    as_json = tollgauge("config", "check", "--json", TOLLGAUGE_WACTH_KEY="hunter2")
    assert (as_text.code, as_json.code, as_json.err) == (0, 0, "")
    assert as_json.json["good"] is True
    assert as_json.json["sells"] is False
    for words in ("[[sources]]", "probe.references", "no contact", "TOLLGAUGE_WATCH_KEY?"):
        assert any(words in warning for warning in as_json.json["warnings"]), words
        assert words in as_text.err
    assert "hunter2" not in as_text.out + as_text.err + as_json.out


def test_config_check_reads_given_file_and_environment(tollgauge: Command, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('[facilitator]\nurl = "https://f.example.com"\n')
    sells = tollgauge(
        "config",
        "check",
        "--config",
        "other.toml",
        TOLLGAUGE_SALE_PAY_TO=PAY_TO,
        TOLLGAUGE_FACILITATOR_HEADERS="Authorization: Bearer hunter2",
        DATABASE_URL="postgresql://me:hunter2@host/db",
    )
    assert sells.code == 0, sells.err
    assert "stores in postgresql, sells reports" in sells.out
    assert "hunter2" not in sells.out + sells.err
    assert "No node of eip155:8453 is set" in sells.err
    missing = tollgauge("config", "check", TOLLGAUGE_CONFIG="gone.toml")
    assert missing.code == 2
    assert "gone.toml cannot be read" in missing.err


def test_init_writes_a_valid_configuration(tollgauge: Command, tmp_path: Path) -> None:
    done = tollgauge("init")
    assert (done.code, done.err) == (0, "")
    assert "wrote tollgauge.toml" in done.out
    assert "tollgauge config check" in done.out
    assert (tmp_path / "tollgauge.toml").read_text(encoding="utf-8") == tollgauge("init", "-").out
    assert tollgauge("config", "check").code == 0
    assert tollgauge("init", "other.toml", "--json").json == {"file": "other.toml"}


def test_init_does_not_replace_a_file(tollgauge: Command, tmp_path: Path) -> None:
    (tmp_path / "tollgauge.toml").write_text("[server]\nport = 9000\n")
    done = tollgauge("init")
    assert (done.code, done.out) == (2, "")
    assert "tollgauge.toml already exists and was not changed." in done.err
    assert (tmp_path / "tollgauge.toml").read_text() == "[server]\nport = 9000\n"


def test_init_reports_why_it_cannot_write(tollgauge: Command) -> None:
    done = tollgauge("init", "no/such/folder.toml")
    assert (done.code, done.out) == (2, "")
    assert "no/such/folder.toml cannot be written: No such file or directory" in done.err
