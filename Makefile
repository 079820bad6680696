# Main commands: `make demo`, `make test`, `make test-all`. Each also does the set-up that it needs.
PYTHON ?=
VENV := .venv
ARGS ?=

.PHONY: bench demo test test-adapters test-all sdk-update setup setup-test clean docs docs-site packages

demo: setup  ## run the whole service on this machine until Ctrl-C
	$(VENV)/bin/tollgauge demo --history-days 30 $(ARGS)

test: setup-test  ## run all checks: format, lint, types, layers, tests
	bash scripts/test.sh

test-all: setup-test  ## the same with long schedules, then with the other supported Python versions
	bash scripts/test.sh all

test-adapters: setup  ## test the guard's adapters for agent frameworks, each in its own environment
	bash scripts/test-adapters.sh $(ARGS)

packages: setup-test  ## build the guards' wheel and npm package, and print their digests: build/guards
	bash scripts/build-guards.sh

setup:  ## install the Python packages and the demo's npm packages from the lock files
	bash scripts/setup.sh demo $(PYTHON)

setup-test:  ## the same, and install the tests' programs from Debian
	bash scripts/setup.sh test $(PYTHON)

bench:  ## run the benchmarks and write docs/benchmarks.md (takes an hour)
	bash scripts/setup.sh bench $(PYTHON)
	$(VENV)/bin/python -m bench.document $(ARGS)

sdk-update: setup-test  ## move the pins of the official x402 SDKs, regenerate their tables, print the differences
	bash scripts/sdk-update.sh

docs:  ## regenerate the documents that are generated from code
	$(VENV)/bin/python docs/generate.py

docs-site: setup  ## build the documentation site: build/docs-site/index.html
	$(VENV)/bin/python -m sphinx -q -W --keep-going -c docs -d build/docs-doctrees . build/docs-site

clean:
	rm -rf .venv .venv-* node_modules build guard/typescript/dist
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
