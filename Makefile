# Two commands: `make run` and `make test`.  Both set up .venv first, and only when it must be.

PYTHON ?= python3
CONFIG ?= etc/mqgateway.yaml
BIN := .venv/bin
READY := .venv/.ready

.PHONY: run test lint types bench clean

run: $(READY)
	@$(BIN)/twistd --nodaemon --pidfile= --reactor=uvloop mqgateway --config $(CONFIG)

test: $(READY)
	@$(BIN)/python -m pytest $(ARGS)

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(READY)
	@$(BIN)/mypy

bench: $(READY)
	@$(BIN)/python -m bench $(ARGS)

# editable_mode=compat puts the checkout on the path, where twistd looks for plugins.
$(READY): setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "mqgateway needs Python 3.11 or newer as $(PYTHON); try: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv >/dev/null 2>&1 || \
		{ rm -rf .venv; echo "$(PYTHON) cannot make .venv; on Debian: apt install python3-venv"; exit 1; }
	@echo "setting up .venv ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat \
		--editable '.[dev]' >.venv/setup.log 2>&1 || \
		{ tail -n 5 .venv/setup.log; echo "the packages cannot be installed; .venv/setup.log has it all"; exit 1; }
	@touch $(READY)

clean:
	@rm -rf .venv build dist *.egg-info
