#!/usr/bin/env bash
# Every gate, in the order in which they are cheapest to fail. Called by `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin

step() { printf '\n== %s\n' "$*"; }

step "format and lint";  $bin/ruff format --check --quiet . && $bin/ruff check --quiet .
step "layers";           $bin/lint-imports --no-logo
step "types";            $bin/mypy
step "tests";            $bin/python -m pytest -q -n 2 --dist loadgroup
# The other supported Pythons that this machine has: judgement, and one round of everything.
for version in 3.12 3.13; do
  python=$(bash scripts/find-python.sh "$version") || continue
  step "tests on Python $version"
  bash scripts/setup.sh venv ".venv-$version" "$python"
  ".venv-$version/bin/python" -m pytest -q -n 2 --dist loadgroup tests/core tests/golden
  ".venv-$version/bin/tollgauge" demo --once --json >/dev/null
done
step "one round of the demo"
$bin/tollgauge demo --once --json >/dev/null
printf '\nall gates passed\n'
