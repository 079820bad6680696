#!/usr/bin/env bash
# Every gate. `make test` calls it; `make test-all` calls it with `all`, for longer schedules of
# faults, every example of each property, and the other supported Pythons.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
# Tests start many processes: without bytecode files each compiles every module again.
unset PYTHONDONTWRITEBYTECODE

# Files of tests in memory, where there is room for them: their databases wait for no disk then.
room=$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -n 1) || room=0
if [ -z "${TMPDIR:-}" ] && [ "$room" -ge 8 ] && ! findmnt -no OPTIONS /dev/shm | grep -q noexec; then
  TMPDIR=$(mktemp -d /dev/shm/tollgauge-XXXXXX)
  export TMPDIR
  in_memory=$TMPDIR
fi

# More processes than cores, since tests wait part of the time.
tests=(-m pytest -q -p tests.parallel --processes 5)

step() { printf '\n== %s\n' "$*"; }

# Steps that run beside the tests; what one printed is shown when it failed.
outputs=$(mktemp -d)
declare -A beside=()
start() { local name=$1; shift; "$@" >"$outputs/$name" 2>&1 & beside[$name]=$!; }
finish() {
  step "$1"
  wait "${beside[$1]}" || { cat "$outputs/$1"; exit 1; }
  unset "beside[$1]"
}
end() {
  [ "${#beside[@]}" -eq 0 ] || kill "${beside[@]}" 2>/dev/null || true
  rm -rf "$outputs" "${in_memory:-$outputs}"
}
trap end EXIT

export TOLLGAUGE_TEST_PROGRAMS=required # set-up installed them: a test that misses one fails
[ "${1:-}" = all ] && export TOLLGAUGE_SCHEDULES=300
step "format and lint";  $bin/ruff format --check --quiet . && $bin/ruff check --quiet .
# The tests are imported on one core; beside that, and where they wait, the types are checked.
start "types" $bin/mypy
start "layers" $bin/lint-imports --no-logo
step "tests";            $bin/python "${tests[@]}"
finish "types"
finish "layers"

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
