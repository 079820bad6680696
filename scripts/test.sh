#!/usr/bin/env bash
# All checks. `make test` runs it; `make test-all` runs it with `all`, which adds longer fault
# schedules, more examples per property, and the other supported Python versions.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
# Tests start many processes. Without bytecode files, each would compile every module again.
unset PYTHONDONTWRITEBYTECODE

# Keep the files of tests in memory if there is room, so that their databases do not wait for a disk.
room=$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -n 1) || room=0
if [ -z "${TMPDIR:-}" ] && [ "$room" -ge 8 ] && ! findmnt -no OPTIONS /dev/shm | grep -q noexec; then
  TMPDIR=$(mktemp -d /dev/shm/tollgauge-XXXXXX)
  chmod 711 "$TMPDIR" # PostgreSQL, which does not run as root, has its files below
  export TMPDIR
  in_memory=$TMPDIR
fi

# More processes than cores, because tests wait part of the time.
tests=(-m pytest -q -p tests.parallel --processes 5)

step() { printf '\n== %s\n' "$*"; }

# Steps in the background of the tests. The output of a step is shown only if it failed.
outputs=$(mktemp -d)
declare -A background=()
start() { local name=$1; shift; "$@" >"$outputs/$name" 2>&1 & background[$name]=$!; }
finish() {
  step "$1"
  wait "${background[$1]}" || { cat "$outputs/$1"; exit 1; }
  unset "background[$1]"
}
end() {
  [ "${#background[@]}" -eq 0 ] || kill "${background[@]}" 2>/dev/null || true
  rm -rf "$outputs" "${in_memory:-$outputs}"
}
trap end EXIT

export TOLLGAUGE_TEST_PROGRAMS=required # set-up installs them: a test without its program fails
[ "${1:-}" = all ] && export TOLLGAUGE_SCHEDULES=300
step "format and lint";  $bin/ruff format --check --quiet . && $bin/ruff check --quiet .
# Importing the tests uses one core, and later they wait at times. The type check uses the rest.
start "types" $bin/mypy
start "layers" $bin/lint-imports --no-logo
step "tests";            $bin/python "${tests[@]}"
finish "types"
finish "layers"

if [ "${1:-}" = all ]; then
  # With the other Python versions of this machine: core, golden tests, and one round of the demo.
  for version in 3.12 3.13; do
    python=$(bash scripts/find-python.sh "$version") || continue
    step "tests on Python $version"
    bash scripts/setup.sh venv ".venv-$version" "$python"
    ".venv-$version/bin/python" "${tests[@]}" tests/core tests/golden
    ".venv-$version/bin/tollgauge" demo --once --json >/dev/null
  done
fi
printf '\nall checks passed\n'
