# SPDX-License-Identifier: MIT
# Targets around the driver patch; docs/driver-patch.md and docs/bench.md.
# DRIVER_SRC names a source tree of NVIDIA's open kernel modules; without it the
# DKMS source of the running driver is taken when there is just one. make turns
# every exit code but 0 into 2: call tools/driver directly where the code counts.

ARMS ?= ab
DRIVER_BUILD ?= build/driver-$(ARMS)
DRIVER := tools/driver

.PHONY: check-driver patch-driver install-driver revert-driver driver-status driver-verify
.PHONY: bench-driver bench-mutants

check-driver:
	DRIVER_SRC="$(DRIVER_SRC)" $(DRIVER) check

# A tree that an earlier call made is replaced; anything else there is an error.
patch-driver:
	@if [ -e $(DRIVER_BUILD)/vmmprof-patch.json ]; then rm -rf $(DRIVER_BUILD); fi
	DRIVER_SRC="$(DRIVER_SRC)" $(DRIVER) patch --into $(DRIVER_BUILD) --arms $(ARMS)
	$(DRIVER) build $(DRIVER_BUILD)
	$(DRIVER) sign $(DRIVER_BUILD)

# INSTALL_FLAGS: --dry-run, --next-boot
install-driver:
	$(DRIVER) install $(DRIVER_BUILD) $(INSTALL_FLAGS)

revert-driver:
	$(DRIVER) revert $(INSTALL_FLAGS)

driver-status:
	$(DRIVER) status

driver-verify:
	$(DRIVER) verify

bench-driver:
	kernel_module_tests/run-bench $(if $(DRIVER_SRC),--driver-src "$(DRIVER_SRC)")

bench-mutants:
	kernel_module_tests/run-bench --mutants $(if $(DRIVER_SRC),--driver-src "$(DRIVER_SRC)")
