"""compose.yaml: its settings, and its services started here without a container engine."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from tests.support.command_server import command as prepared_command
from tests.support.command_server import program
from tests.support.packaging import ROOT, stages, values
from tests.support.postgres import Postgres
from tests.support.processes import free_port
from tests.support.signing import KEY, PRIVATE_JWK

from tollgauge.config import find_unused, load
from tollgauge.db.postgres_backup import examine

COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
*_, IMAGE = stages(ROOT / "Containerfile")
SERVICES = pytest.mark.parametrize("name", COMPOSE["services"])
OURS = pytest.mark.parametrize("name", ["serve", "work", "backup"])


@SERVICES
def test_every_service_restarts_has_a_health_check_and_no_privileges(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["restart"] == "unless-stopped"
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["healthcheck"]["test"]
    assert "privileged" not in service
    for secret in service["secrets"]:
        assert COMPOSE["secrets"][secret] == {"file": f"./secrets/{secret}"}


@OURS
def test_services_write_only_to_volumes(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    writable = [volume for volume in service["volumes"] if not volume.endswith(":ro")]
    assert writable == (["backups:/var/backups/tollgauge"] if name == "backup" else [])
    (install,) = (line for line in values(IMAGE, "RUN") if "install -d" in line)
    assert "/var/backups/tollgauge" in install, "a new volume has the owner of its folder"


def environment_of(name: str, folder: Path, secrets: dict[str, str]) -> dict[str, str]:
    """Return the environment of a service; its secret files are written to a folder."""
    service = COMPOSE["services"][name]
    environment: dict[str, str] = dict(service["environment"])
    assert sorted(service["secrets"]) == sorted(secrets)
    for secret, text in secrets.items():
        (folder / secret).write_text(text)
    return {key: value.replace("/run/secrets/", f"{folder}/") for key, value in environment.items()}


@OURS
def test_services_use_only_existing_settings(name: str, tmp_path: Path) -> None:
    secrets = {
        "database_url": "postgresql://tollgauge:hunter2@postgres/tollgauge\n",
        "watch_key": "k" * 32 + "\n",
        "signing_key": PRIVATE_JWK + "\n",
        "nodes": "",
        "facilitator_headers": "",
    }
    environment = environment_of(name, tmp_path, secrets)
    assert find_unused(environment) == []
    config = load(None, environment)
    assert config.store.url.startswith("postgresql://tollgauge:hunter2@postgres/")
    assert config.watch.key == "k" * 32
    assert config.signing.signing_key == KEY
    assert config.chains == ()
    gateway = COMPOSE["networks"]["inside"]["ipam"]["config"][0]["gateway"]
    assert config.server.front.trusted_proxies == (gateway,)


def test_published_port_is_reachable_only_from_this_machine() -> None:
    published = {name: service.get("ports") for name, service in COMPOSE["services"].items()}
    published = {name: ports for name, ports in published.items() if ports}
    assert published == {"serve": ["127.0.0.1:8402:8402"]}
    assert values(IMAGE, "EXPOSE") == ["8402"]


def test_database_version_matches_the_client_tools_of_the_image() -> None:
    (installs,) = (line for line in values(IMAGE, "RUN") if "apt-get install" in line)
    image = COMPOSE["services"]["postgres"]["image"]
    assert f"postgresql-client-{image.rpartition(':')[2]}" in installs


@pytest.mark.postgres
def test_services_start_together_on_an_empty_database_and_are_healthy(
    postgres: Postgres, tmp_path: Path
) -> None:
    postgres.sql("CREATE DATABASE compose")
    secrets = {"database_url": postgres.url("compose"), "watch_key": "k" * 32}
    secrets |= {"signing_key": "", "nodes": "", "facilitator_headers": ""}
    tollgauge = program(tmp_path / "bin")
    subprocess.run([tollgauge, "init", "tollgauge.toml"], cwd=tmp_path, check=True)
    python = Path(sys.executable).parent  # for the health checks
    path = {"PATH": f"{tollgauge.parent}:{python}:{postgres.binaries}:/usr/bin:/bin"}
    ports = dict(zip(("8402", "8403", "8404"), (str(free_port()) for _ in range(3)), strict=True))

    def environment(name: str) -> dict[str, str]:
        inside = environment_of(name, tmp_path, secrets) | path
        admin = ports["8403" if name == "serve" else "8404"]
        return inside | {
            "TOLLGAUGE_CONFIG": "tollgauge.toml",
            "TOLLGAUGE_SERVER_PORT": ports["8402"],
            "TOLLGAUGE_SERVER_ADMIN_PORT": admin,
        }

    def healthy(name: str) -> bool:
        kind, *words = COMPOSE["services"][name]["healthcheck"]["test"]
        assert kind == "CMD"
        inside = "8402" if name == "serve" else "8403"
        outside = ports["8402" if name == "serve" else "8404"]
        check = [word.replace(inside, outside) for word in words]
        return subprocess.run(check, env=path, capture_output=True).returncode == 0

    processes = {
        name: subprocess.Popen(
            prepared_command("tollgauge", *COMPOSE["services"][name]["command"]),
            cwd=tmp_path,
            env=environment(name),
            stderr=subprocess.PIPE,
        )
        for name in ("serve", "work")
    }
    try:
        deadline = time.monotonic() + 60
        for name, process in processes.items():
            while not healthy(name):
                assert process.poll() is None, process.communicate()[1].decode()
                assert time.monotonic() < deadline
                time.sleep(0.2)
        words = ["tollgauge", "backup", "copy.dump"]
        subprocess.run(words, cwd=tmp_path, env=environment("backup"), check=True)
        assert examine(tmp_path / "copy.dump").bytes
    finally:
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        said = {name: process.communicate(timeout=60)[1] for name, process in processes.items()}
    assert {process.returncode for process in processes.values()} == {0}, said
    assert b"tollgauge works: probe, schedule" in said["work"]
