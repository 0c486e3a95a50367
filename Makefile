# SPDX-License-Identifier: MIT
# Everything a new machine needs is installed into .venv by the first target
# that needs it; nothing outside this folder is touched.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SIZES ?= 30M:66M:2M
RESULTS ?= results

.DEFAULT_GOAL := help

include tools/driver.mk

.PHONY: help sweep test lab-test lint clean

help:
	@echo "make sweep         measure $(SIZES) (MODEL where there is no GPU), show and draw it"
	@echo "make test          lint and all tests that this machine can run"
	@echo "make lab-test      test probes and modules inside emulated kernels (installs QEMU, as root)"
	@echo "make bench-driver  judge the update loop of DRIVER_SRC, or of our own without it"
	@echo "make patch-driver  patch and build DRIVER_SRC; then install-, revert-driver, driver-status"
	@echo "make clean         remove what make made, recordings apart"

# The stamp is renewed when the build's inputs change, so that an old extension is never run.
$(VENV)/installed: pyproject.toml setup.py src/vmmprof/drivers/cuda/_cycle.pyx src/vmmprof/drivers/cuda/cycle_core.hpp src/vmmprof/drivers/cuda/burst.hpp src/vmmprof/drivers/cuda/victim.hpp src/vmmprof/drivers/cuda/nvtx.hpp
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@

sweep: $(VENV)/installed
	@mkdir -p $(RESULTS)
	@name=$(RESULTS)/sweep-$$(date +%Y%m%d-%H%M%S); \
	$(BIN)/vmmprof sweep --sizes $(SIZES) --output $$name --plot $$name.vmmprof/pictures

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=tools:kernel_module_tests $(BIN)/mypy --strict -p driverpatch -p bench -p lab -p kernel_lab
	$(BIN)/lint-imports --no-cache

# The lab boots kernels under emulation and takes minutes; it has a target of its own.
test: lint
	$(BIN)/python -m pytest --ignore tests/lab

lab-test: $(VENV)/installed
	tools/kernel-lab setup --packages
	VMMPROF_REQUIRE=lab $(BIN)/python -m pytest tests/lab

clean:
	rm -rf $(VENV) build src/*.egg-info src/vmmprof/drivers/cuda/_cycle.cpp src/vmmprof/drivers/cuda/*.so
