"""The units of systemd: that it takes them, and that what they start exists."""

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
    """The settings of a section of a unit; one may be there several times."""
    text = path.read_text(encoding="utf-8").split(f"[{name}]\n")[1].split("\n[")[0]
    settings: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        settings.setdefault(key, []).append(value)
    return settings


def test_systemd_finds_nothing_to_say_of_them(tmp_path: Path) -> None:
    """With a program in the place of ours, which is not installed here."""
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
    """What a unit starts of ours, an instance at a time."""
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
def test_the_commands_that_they_start_exist(path: Path) -> None:
    program = typer.main.get_command(app)
    for words in commands_of(path):
        command = program
        for word in words.split():
            assert word in getattr(command, "commands", {}), words
            command = command.commands[word]  # type: ignore[attr-defined]


@SERVICES
def test_they_may_write_to_their_own_folders_alone(path: Path) -> None:
    settings = section(path)
    assert {key: settings[key] for key in HARDENING} == {
        key: [value] for key, value in HARDENING.items()
    }
    assert settings["User"] == ["tollgauge"]
    assert "ReadWritePaths" not in settings


def test_both_services_are_hardened_alike() -> None:
    hardened = [
        {key: value for key, value in section(path).items() if key.startswith(("P", "R", "S", "L"))}
        for path in (SERVICE, BACKUP)
    ]
    for settings in hardened:
        for own in ("Restart", "RestartSec", "StateDirectory", "LimitNOFILE"):
            settings.pop(own, None)
    assert hardened[0] == hardened[1]


def test_a_process_may_finish_what_it_began_before_it_is_killed() -> None:
    from tollgauge.app import DRAIN_SECONDS

    (seconds,) = section(SERVICE)["TimeoutStopSec"]
    assert int(seconds) > 2 * DRAIN_SECONDS, "rounds, and then the sales whose callers have gone"


def test_two_processes_of_one_machine_have_two_ports_for_metrics() -> None:
    parser = RawConfigParser()
    parser.read(UNITS / "tollgauge@work.service.d" / "admin-port.conf")
    name, _, port = parser["Service"]["Environment"].partition("=")
    assert name == "TOLLGAUGE_SERVER_ADMIN_PORT"
    assert int(port) not in (8402, 8403)


def test_the_copies_that_are_removed_are_those_that_were_made() -> None:
    settings = section(BACKUP)
    (copy,), (removed,) = settings["ExecStart"], settings["ExecStartPost"]
    folder = "/var/lib/tollgauge-backups"
    assert f"{folder}/$$(date -u +%%FT%%H%%M%%S).copy" in copy
    assert removed == f"/usr/bin/find {folder} -name *.copy -mtime +14 -delete"
    assert Path(folder).name in settings["StateDirectory"][0].split()
    assert section(UNITS / "tollgauge-backup.timer", "Timer")["OnCalendar"] == ["daily"]
