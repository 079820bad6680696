#!/usr/bin/env bash
# Make a checkout ready: scripts/setup.sh venv DIR [PYTHON] | node | postgres | chromium | bench
# Each part does nothing when it is already done. Python's packages come from the hashed lock
# files; Node's from package-lock.json; PostgreSQL and Chromium from Debian.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
die() { printf 'setup: %s\n' "$*" >&2; exit 2; }

apt_install() {
  command -v apt-get >/dev/null || die "cannot install $*: no apt-get here; install it by hand"
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "installing $* needs root: run 'apt-get install $*' as root"
    root=(sudo)
  fi
  say "installing Debian packages: $*"
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 ||
    { "${root[@]}" apt-get update -qq >/dev/null &&
      "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; } ||
    die "could not install $*"
}

# The distribution's Python, if it can do it: it takes a tenth less time than one that pyenv built,
# where each call inside the interpreter goes through a shared library.
default_python() {
  local system=/usr/bin/python3
  if "$system" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "$system"
  else
    echo python3
  fi
}

venv() {
  local dir=$1 python=${2:-$(default_python)} stamp
  command -v "$python" >/dev/null || die "$python not found: install Python 3.11 or newer"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "$python is older than 3.11"
  stamp=$(cat requirements-dev.lock requirements-setup.lock pyproject.toml guard/python/pyproject.toml |
    sha256sum | cut -c1-64)
  if [ -f "$dir/.stamp" ] && [ "$(cat "$dir/.stamp")" = "$stamp" ]; then return; fi
  "$python" -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv
  say "building $dir"
  "$python" -m venv "$dir"
  local pip=("$dir/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes)
  # uv is many times faster; where it cannot reach an index, pip with its own settings can.
  if ! { "${pip[@]}" -r requirements-setup.lock 2>/dev/null &&
    "$dir/bin/uv" pip install --quiet --python "$dir/bin/python" --require-hashes \
      -r requirements-dev.lock 2>/dev/null; }; then
    "${pip[@]}" -r requirements-dev.lock || die "could not install the locked Python packages"
  fi
  "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation --editable . --editable guard/python ||
    die "could not install tollgauge and tollgauge-guard"
  printf '%s' "$stamp" >"$dir/.stamp"
}

node() {
  command -v npm >/dev/null || die "npm not found: the demo's chain comes from npm; install Node.js 20"
  local stamp
  stamp=$(sha256sum <package-lock.json | cut -c1-64)
  if [ ! -f node_modules/.stamp ] || [ "$(cat node_modules/.stamp)" != "$stamp" ]; then
    say "installing the locked npm packages"
    npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error >/dev/null || die "npm ci failed"
    printf '%s' "$stamp" >node_modules/.stamp
  fi
  typescript_guard
}

# guard/typescript/dist, which git does not keep.
typescript_guard() {
  local stamp built=guard/typescript/dist/.stamp
  stamp=$(cat package-lock.json guard/typescript/*.json guard/typescript/src/* | sha256sum | cut -c1-64)
  if [ -f "$built" ] && [ "$(cat "$built")" = "$stamp" ]; then return; fi
  say "building the guard for TypeScript"
  npm run --silent build --workspace guard/typescript || die "the guard for TypeScript could not be built"
  printf '%s' "$stamp" >"$built"
}

postgres() {
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || apt_install postgresql
}

bench() {
  # `type -P`, not `command -v`, which would find a function of this file.
  type -P prometheus-blackbox-exporter >/dev/null || apt_install prometheus-blackbox-exporter
  type -P nginx >/dev/null || apt_install nginx-light
  type -P wrk >/dev/null || apt_install wrk
}

chromium() {
  type -P chromium >/dev/null || apt_install chromium
}

case ${1:-} in
  venv) venv "$2" "${3:-}" ;;
  node | typescript_guard | postgres | chromium | bench) "$1" ;;
  *) die "usage: setup.sh venv DIR [PYTHON] | node | postgres | chromium | bench" ;;
esac
