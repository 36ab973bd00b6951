# Two commands do all set-up: `make run` runs Samovar, `make test` checks and tests it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=

.PHONY: run install check test bench lock clean

run: install ## start everything in the foreground, with the sample functions
	exec $(BIN)/samovar up --samples $(ARGS)

install: $(STAMP) ## create .venv and install

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Samovar needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module; install it (Debian, Ubuntu: apt-get install python3-venv)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check "uv>=0.9"
	$(BIN)/uv pip sync -q --python $(BIN)/python requirements.lock
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps -e .
	@touch $(STAMP)

check: install ## style, types, import walls
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check ## every check and test that this machine can run
	$(BIN)/pytest $(ARGS)

bench: install ## one table of measurements, each beside its control
	$(BIN)/python -m loadtests.bench $(ARGS)

lock: ## resolve requirements.lock again from pyproject.toml
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --extra dev --no-header pyproject.toml -o requirements.lock
	sed -i '1i # Resolved from pyproject.toml by `make lock`; installed by `make install`.' requirements.lock

clean: ## remove what install and run left here
	rm -rf $(VENV) .samovar build *.egg-info
