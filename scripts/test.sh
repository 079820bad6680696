#!/usr/bin/env bash
# Every gate. `make test` calls it; `make test-all` calls it with `all`, for longer schedules of
# faults and the other supported Pythons.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
# Tests start hundreds of processes: without bytecode files each compiles every module again.
unset PYTHONDONTWRITEBYTECODE

# More workers than cores, since tests wait half of the time; a file stays on one, with its servers.
tests=(-m pytest -q -n 4 --dist loadfile --no-loadscope-reorder)

step() { printf '\n== %s\n' "$*"; }

step "format and lint";  $bin/ruff format --check --quiet . && $bin/ruff check --quiet .
step "layers";           $bin/lint-imports --no-logo
# mypy needs one core, a round of the demo mostly waits: they run together.
step "types, one round of the demo"
$bin/mypy & types=$!
trap 'kill $types 2>/dev/null || true' EXIT
$bin/tollgauge demo --once --json >/dev/null
wait $types
trap - EXIT
[ "${1:-}" = all ] && export TOLLGAUGE_SCHEDULES=300
step "tests";            $bin/python "${tests[@]}"

if [ "${1:-}" = all ]; then
  # On the other Pythons that this machine has: judgement, and one round of everything.
  for version in 3.12 3.13; do
    python=$(bash scripts/find-python.sh "$version") || continue
    step "tests on Python $version"
    bash scripts/setup.sh venv ".venv-$version" "$python"
    ".venv-$version/bin/python" "${tests[@]}" tests/core tests/golden
    ".venv-$version/bin/tollgauge" demo --once --json >/dev/null
  done
fi
printf '\nall gates passed\n'
