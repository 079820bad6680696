"""The units are valid for systemd, and the commands that they start exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest
import typer.main
from tests.support.packaging import ROOT
from tests.support.programs import require

from tollgauge.cli import app

UNITS = ROOT / "deploy" / "systemd"
SERVICE, BACKUP = UNITS / "tollgauge@.service", UNITS / "tollgauge-backup.service"
SERVICES = pytest.mark.parametrize("path", [SERVICE, BACKUP], ids=lambda path: path.name)
INSTANCES = ("run", "serve", "work")
HARDENING = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "SystemCallFilter": "@system-service",
    "UMask": "0077",
}


def section(path: Path, name: str = "Service") -> dict[str, list[str]]:
    """Return the settings of a section of a unit. A setting may occur several times."""
    text = path.read_text(encoding="utf-8").split(f"[{name}]\n")[1].split("\n[")[0]
    settings: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        settings.setdefault(key, []).append(value)
    return settings


def test_systemd_has_no_findings(tmp_path: Path) -> None:
    """`/bin/true` replaces tollgauge, which is not installed here."""
    units = tmp_path / "units"
    shutil.copytree(UNITS, units)
    for unit in units.glob("*.service"):
        unit.write_text(unit.read_text().replace("/opt/tollgauge/bin/tollgauge", "/bin/true"))
    started = [f"tollgauge@{name}.service" for name in INSTANCES]
    done = subprocess.run(
        [require("systemd-analyze"), "verify", "--man=no", *started, "tollgauge-backup.timer"],
        cwd=units,
        capture_output=True,
        text=True,
        env={"SYSTEMD_UNIT_PATH": f"{units}:"},
    )
    ours = [line for line in done.stderr.splitlines() if "tollgauge" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def commands_of(path: Path) -> list[str]:
    """Return the tollgauge commands that a unit starts, for each instance."""
    settings = section(path)
    lines = [line for key, lines in settings.items() if key.startswith("Exec") for line in lines]
    started = [
        match[1]
        for line in lines
        for match in re.finditer(r"/bin/tollgauge (\S+(?: check)?)", line)
    ]
    assert started
    return [word.replace("%i", name) for word in started for name in INSTANCES]


@SERVICES
def test_commands_of_units_exist(path: Path) -> None:
    program = typer.main.get_command(app)
    for words in commands_of(path):
        command = program
        for word in words.split():
            assert word in getattr(command, "commands", {}), words
            command = command.commands[word]  # type: ignore[attr-defined]


@SERVICES
def test_units_write_only_to_their_own_folders(path: Path) -> None:
    settings = section(path)
    assert {key: settings[key] for key in HARDENING} == {
        key: [value] for key, value in HARDENING.items()
    }
    assert settings["User"] == ["tollgauge"]
    assert "ReadWritePaths" not in settings


def test_both_services_have_the_same_hardening() -> None:
    hardened = [
        {key: value for key, value in section(path).items() if key.startswith(("P", "R", "S", "L"))}
        for path in (SERVICE, BACKUP)
    ]
    for settings in hardened:
        for own in ("Restart", "RestartSec", "StateDirectory", "LimitNOFILE"):
            settings.pop(own, None)
    assert hardened[0] == hardened[1]


def test_process_may_finish_its_work_before_it_is_killed() -> None:
    from tollgauge.app import DRAIN_SECONDS

    (seconds,) = section(SERVICE)["TimeoutStopSec"]
    assert int(seconds) > 2 * DRAIN_SECONDS, "running rounds, then sales of disconnected clients"


def test_two_processes_on_one_machine_have_different_metrics_ports() -> None:
    parser = RawConfigParser()
    parser.read(UNITS / "tollgauge@work.service.d" / "admin-port.conf")
    name, _, port = parser["Service"]["Environment"].partition("=")
    assert name == "TOLLGAUGE_SERVER_ADMIN_PORT"
    assert int(port) not in (8402, 8403)


def test_only_copies_of_the_backup_are_deleted() -> None:
    settings = section(BACKUP)
    (copy,), (removed,) = settings["ExecStart"], settings["ExecStartPost"]
    folder = "/var/lib/tollgauge-backups"
    assert f"{folder}/$$(date -u +%%FT%%H%%M%%S).copy" in copy
    assert removed == f"/usr/bin/find {folder} -name *.copy -mtime +14 -delete"
    assert Path(folder).name in settings["StateDirectory"][0].split()
    assert section(UNITS / "tollgauge-backup.timer", "Timer")["OnCalendar"] == ["daily"]
