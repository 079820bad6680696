# Commands for people: `make demo`, `make test`, `make test-all`. Each does all the set-up it needs.
PYTHON ?=
VENV := .venv
ARGS ?=

.PHONY: bench demo test test-all setup setup-test clean docs docs-site

demo: setup  ## the whole service at work on this machine, until Ctrl-C
	$(VENV)/bin/tollgauge demo --history-days 30 $(ARGS)

test: setup-test  ## every gate: format, lint, types, layers, tests
	bash scripts/test.sh

test-all: setup-test  ## the same with long schedules, then the other supported Pythons
	bash scripts/test.sh all

setup:  ## Python packages and the demo's Node parts, from the lock files
	bash scripts/setup.sh demo $(PYTHON)

setup-test:  ## the same and all programs that the tests start, from Debian
	bash scripts/setup.sh test $(PYTHON)

bench:  ## measure the service and write docs/benchmarks.md; takes an hour
	bash scripts/setup.sh bench $(PYTHON)
	$(VENV)/bin/python -m bench.document $(ARGS)

docs:  ## write again what is generated from the code
	$(VENV)/bin/python docs/generate.py

docs-site: setup  ## the documentation as a site: build/docs-site/index.html
	$(VENV)/bin/python -m sphinx -q -W --keep-going -c docs -d build/docs-doctrees . build/docs-site

clean:
	rm -rf .venv .venv-* node_modules build guard/typescript/dist
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
