# make run: the dashboard. make test: all tests. make test-quick: those for the edit loop. make test-long: many more draws.
# make check: lint, format and types. make audit: known weaknesses of its dependencies. make train: the small
# models. make docs: the documentation's site. make screens: the README's pictures. make picture: the picture of the
# packages. Each sets up what it needs. The browser's tests run apart: Playwright keeps an event loop in its process.
# Those of tests/alone hold measured times against predicted ones, so nothing runs beside them.
# Bytecode is kept, or each of the many processes of the tests would compile kvviz again. Files begin in the order of their
# folders; xdist would begin those of few tests last, among which are the longest. Some tests mostly wait for a server, so
# two cores are busy with three processes.
PYTHON ?= python3
PORT ?= 8501
HOST ?= 127.0.0.1
VENV := .venv
# Python compiles what it imports, once; pip would compile all 16,000 files, which takes most of a minute.
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
# A machine without an NVIDIA card takes torch's wheels for processors alone: about 200 MB; those with CUDA are over 2 GB.
CARD := $(wildcard /proc/driver/nvidia/version /dev/dxg)$(shell command -v nvidia-smi)
TORCH_INDEX ?= $(if $(CARD)$(filter-out Linux,$(shell uname -s)),,https://download.pytorch.org/whl/cpu)
TORCH := $(shell grep '^torch==' requirements.txt)
PYTEST := PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: run test test-quick test-long check audit python train docs screens picture

run: $(VENV)/.app
	PORT=$(PORT) HOST=$(HOST) $(VENV)/bin/python app.py

test: $(VENV)/.dev
	@command -v chromium chromium-browser google-chrome >/dev/null || $(VENV)/bin/playwright install chromium || true
	$(PYTEST) -n 3 -m "not long" --ignore=tests/browser --ignore=tests/faults --ignore=tests/alone
	$(PYTEST) -n 3 tests/browser tests/faults
	$(PYTEST) -n 0 tests/alone

test-quick: $(VENV)/.dev
	KVVIZ_DRAWS=quick $(PYTEST) -m "not browser and not worker and not slow and not long"

test-long: $(VENV)/.dev $(VENV)/.docs
	KVVIZ_DRAWS=long $(PYTEST) --ignore=tests/browser --ignore=tests/faults --ignore=tests/alone

check: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "kvviz/site/index.html; the dashboard serves it at /docs from its next start"

screens: $(VENV)/.dev
	$(VENV)/bin/python -m tools.screens

picture: $(VENV)/bin/python
	$(VENV)/bin/python -m tools.architecture

audit: $(VENV)/.dev
	$(VENV)/bin/pip-audit --requirement requirements.txt
	$(VENV)/bin/pip-audit --requirement requirements-dev.txt

python: $(VENV)/.app

train: $(VENV)/.app
	$(VENV)/bin/python -m training

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.app: requirements.txt | $(VENV)/bin/python
	$(if $(TORCH_INDEX),$(PIP) --retries 1 --index-url $(TORCH_INDEX) "$(TORCH)" || echo "no torch at $(TORCH_INDEX): taking the usual one")
	$(PIP) -r requirements.txt
	echo '$(CURDIR)' > "$$($(VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/kvviz.pth"
	touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.app
	$(PIP) -r requirements-dev.txt
	touch $@

$(VENV)/.docs: requirements-docs.txt $(VENV)/.app
	$(PIP) -r requirements-docs.txt
	touch $@
