#!/usr/bin/env bash
# Prepare a checkout for a make target: scripts/setup.sh demo|test|bench [PYTHON]
# or do one part of it: scripts/setup.sh venv DIR [PYTHON] | typescript_guard | purchases
# A part that is already done is skipped. Programs come from Debian (scripts/programs.txt),
# Python's packages from the hashed lock files, Node's from package-lock.json.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
die() { printf 'setup: %s\n' "$*" >&2; exit 2; }

# Prefer the distribution's Python: it is a tenth faster than one built by pyenv, in which each call
# inside the interpreter goes through a shared library.
default_python() {
  local system=/usr/bin/python3
  if "$system" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "$system"
  else
    echo python3
  fi
}

# Install the missing programs of a target. If that fails, list all of them in one message.
programs() {
  local target=$1 python=$2 program package targets service missing=() packages=() services=()
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    missing+=("Python's venv") packages+=(python3-venv)
  fi
  while read -r program package targets service; do
    case $program in '#'* | '') continue ;; esac
    [[ ",$targets," == *",$target,"* ]] || continue
    found "$program" && continue
    missing+=("${program##*/}") packages+=("$package")
    [ -z "$service" ] || services+=("$service")
  done <scripts/programs.txt
  [ ${#missing[@]} -eq 0 ] || apt_install "${missing[*]}" "${packages[*]}" "${services[*]:-}"
}

# `type -P`, not `command -v`, which would find a function of this file.
found() {
  type -P "${1##*/}" >/dev/null || compgen -G "$1" >/dev/null ||
    PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | grep -q "^[[:space:]]*$1 "
}

apt_install() {
  local missing=$1 packages services root=()
  packages=$(printf '%s\n' $2 | sort -u | paste -sd' ') services=$3
  local by_hand="missing: $missing. Install them (as root: apt-get install $packages) and try again."
  command -v apt-get >/dev/null || die "$by_hand"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "$by_hand"
    root=(sudo)
  fi
  say "installing Debian packages: $packages"
  "${root[@]}" sh -s "$packages" "$services" <<'ROOT' || die "$by_hand"
set -eu
export DEBIAN_FRONTEND=noninteractive
# Debian runs this program before it starts a package's service. These services must not run here.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  trap 'exit 1' HUP INT TERM
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi
install() { apt-get install -y -qq --no-install-recommends $1 >/dev/null </dev/null; }
install "$1" 2>/dev/null || { apt-get update -qq && install "$1"; }
# Do not start them with the machine either.
if [ -n "$2" ] && command -v systemctl >/dev/null; then systemctl --quiet disable $2 || true; fi
ROOT
}

venv() {
  local dir=$1 python=${2:-$(default_python)} stamp
  command -v "$python" >/dev/null || die "$python not found: install Python 3.11 or newer"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "$python is older than 3.11"
  stamp=$(cat requirements-dev.lock requirements-setup.lock pyproject.toml guard/python/pyproject.toml |
    sha256sum | cut -c1-64)
  if [ -f "$dir/.stamp" ] && [ "$(cat "$dir/.stamp")" = "$stamp" ]; then return; fi
  say "building $dir"
  "$python" -m venv "$dir"
  local pip=("$dir/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes)
  # uv is many times faster. If it cannot reach an index, pip with its own settings may.
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

# The packages of package-lock.json: the demo's chain, clients for tests, the TypeScript compiler.
node_packages() {
  local stamp
  [ "$(node -p 'parseInt(process.versions.node)')" -ge 20 ] ||
    die "$(node --version) of Node.js is too old: install Node.js 20 or newer"
  stamp=$(sha256sum <package-lock.json | cut -c1-64)
  if [ ! -f node_modules/.stamp ] || [ "$(cat node_modules/.stamp)" != "$stamp" ]; then
    say "installing the locked npm packages"
    npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error >/dev/null || die "npm ci failed"
    printf '%s' "$stamp" >node_modules/.stamp
  fi
  typescript_guard
}

# guard/typescript/dist, which is not in git.
typescript_guard() {
  local stamp built=guard/typescript/dist/.stamp
  stamp=$(cat package-lock.json guard/typescript/*.json guard/typescript/*.mjs guard/typescript/src/* \
    guard/python/src/tollgauge_guard/journal.sql | sha256sum | cut -c1-64)
  if [ -f "$built" ] && [ "$(cat "$built")" = "$stamp" ]; then return; fi
  say "building the guard for TypeScript"
  npm run --silent build --workspace guard/typescript || die "the guard for TypeScript could not be built"
  printf '%s' "$stamp" >"$built"
}

# The sellers and guards of `tollgauge bench pay-twice`, each with its own lock file. None of them is
# part of the service or of its tests.
purchases() {
  local parts=bench/purchases name stamp python
  python=$(default_python)
  for name in guards tx402; do
    stamp=$(sha256sum <$parts/$name.lock | cut -c1-64)
    [ "$(cat "build/purchases/$name/.stamp" 2>/dev/null)" = "$stamp" ] && continue
    say "building build/purchases/$name"
    "$python" -m venv "build/purchases/$name"
    .venv/bin/uv pip install --quiet --python "build/purchases/$name/bin/python" --require-hashes \
      --only-binary :all: -r "$parts/$name.lock" || die "could not install $parts/$name.lock"
    printf '%s' "$stamp" >"build/purchases/$name/.stamp"
  done
  say "installing the npm packages of $parts"
  npm ci --prefix "$parts" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null ||
    die "npm ci failed in $parts"
}

target() {
  local target=$1 python=${2:-$(default_python)}
  command -v "$python" >/dev/null || die "$python not found: install Python 3.11 or newer"
  programs "$target" "$python"
  # Only the demo works without Node.js, but then it has no chain.
  if type -P npm >/dev/null && type -P node >/dev/null; then
    venv .venv "$python"
    node_packages
  else
    say "npm is missing: the demo runs without a chain and without payments (install Node.js 20 or newer to get them)"
    venv .venv "$python"
  fi
}

case ${1:-} in
  demo | test | bench) target "$1" "${2:-}" ;;
  venv) venv "$2" "${3:-}" ;;
  typescript_guard) typescript_guard ;;
  purchases) purchases ;;
  *) die "usage: setup.sh demo|test|bench [PYTHON] | venv DIR [PYTHON] | typescript_guard | purchases" ;;
esac
