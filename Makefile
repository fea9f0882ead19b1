# `make run`, `make demo` and `make test`.  All set up .venv first, and only when it must be.

PYTHON ?= python3
CONFIG ?= etc/mqgateway.yaml
BIN := .venv/bin
READY := .venv/.ready

# install,command,package,consequence: for what pip does not have.  The rest works without it.  The
# machine's list of packages may be old, or none.
define install
	@command -v $(1) >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing $(2) ..." && \
			{ apt-get install -y $(2) || { apt-get update && apt-get install -y $(2); }; } >.venv/apt.log 2>&1; } || \
		echo "$(1) is missing, and $(3); on Debian: apt-get install $(2)"
endef

# make demo SECONDS=30 RATE=1000: how long, and how many messages a second.
SECONDS ?=
RATE ?=

.PHONY: run demo test lint types bench clean

run: $(READY)
	$(call install,java,openjdk-17-jre-headless,Spark does not run without it)
	@$(BIN)/twistd --nodaemon --pidfile= --reactor=uvloop mqgateway --config $(CONFIG)

demo: $(READY)
	$(call install,java,openjdk-17-jre-headless,the demo runs without Spark)
	@$(BIN)/python -m demo $(if $(SECONDS),--seconds $(SECONDS)) $(if $(RATE),--rate $(RATE)) $(ARGS)

test: $(READY)
	$(call install,java,openjdk-17-jre-headless,the tests of Spark are skipped)
	$(call install,chromium,chromium,the tests of the dashboard are skipped)
	$(call install,chromedriver,chromium-driver,the tests of the dashboard are skipped)
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
