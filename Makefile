# `make run` and `make test` are all that a newcomer needs; `make help` lists
# the rest.
PREFIX ?= /usr/local
CARGO ?= cargo
FUZZ_SECONDS ?= 10
FUZZ_TARGETS = $(basename $(notdir $(wildcard fuzz/targets/*.rs)))

.PHONY: help run test lint bench fuzz clean reference tools

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

run: ## build, and serve on localhost until Ctrl-C
	$(CARGO) build --release --locked
	@echo
	@echo "  In another terminal (nc is in Debian's netcat-openbsd):"
	@echo "    echo 'STATS FULL' | nc -w1 localhost 7531"
	@printf '%s\n' "    printf 'ACQ4ME article:1 1 10 5\nRELEASE\n' | nc -q1 localhost 7531"
	@echo
	target/release/poolcounterd

test: reference tools ## everything that shows that it is right
	$(CARGO) test --locked
	@# What it promises holds for an optimized daemon.
	$(CARGO) test --locked --release --test crowds flood
	@for target in $(FUZZ_TARGETS); do \
		echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
		fuzz/run.sh $$target $(FUZZ_SECONDS) > target/fuzz-$$target.log 2>&1 \
			|| { tail -n 50 target/fuzz-$$target.log; exit 1; }; \
		grep -a stat::number_of_executed_units target/fuzz-$$target.log; \
	done

lint: ## format, clippy and docs, warnings being errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --no-default-features --lib -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --document-private-items
	@for crate in bench fuzz; do \
		if [ -f $$crate/Cargo.toml ]; then \
			$(CARGO) fmt --manifest-path $$crate/Cargo.toml --check && \
			$(CARGO) clippy --locked --manifest-path $$crate/Cargo.toml --all-targets -- -D warnings \
				|| exit 1; \
		fi; \
	done
	$(CARGO) test --locked --test dependencies -- --include-ignored

bench: reference ## measure beside Debian's daemon and a minimal server; writes docs/benchmarks.md
	$(CARGO) run --release --locked --manifest-path bench/Cargo.toml -- suite $(BENCH_FLAGS)

fuzz: ## fuzz each target for FUZZ_SECONDS
	@for target in $(FUZZ_TARGETS); do fuzz/run.sh $$target $(FUZZ_SECONDS) || exit 1; done

tools: # what the tests need besides Rust
	@tests/fetch-tools.sh

reference: ## fetch Debian's C daemon, to compare with
	@tests/fetch-reference.sh

clean: ## remove what was built
	$(CARGO) clean
	rm -rf bench/target fuzz/target fuzz/corpus fuzz/artifacts

# --- Installing and packaging ------------------------------------------------
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p;/^version/q' Cargo.toml)
BINARY ?= target/release/poolcounterd
UNIT_DIR ?= $(PREFIX)/lib/systemd/system
# Where the unit finds the binary, should that not be where it is installed now.
UNIT_BINDIR ?= $(PREFIX)/bin
ZSH_COMPLETIONS ?= $(PREFIX)/share/zsh/site-functions
DIST = target/dist/poolcounter-$(VERSION)
STATIC_TARGET = $(shell uname -m)-unknown-linux-musl
STATIC = target/static/poolcounterd-$(VERSION)-$(STATIC_TARGET)
# Same commit, same bits: one time for every file of a tarball, no owner.
TAR = tar --sort=name --owner=0 --group=0 --numeric-owner \
	--mtime=@$(shell git log -1 --format=%ct)

.PHONY: install dist-tree dist deb static test-package

target/release/poolcounterd: Cargo.toml Cargo.lock $(shell find src -name '*.rs')
	$(CARGO) build --release --locked

install: $(BINARY) ## install below $(DESTDIR)$(PREFIX), /usr/local if not told otherwise
	install -D -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/poolcounterd
	install -D -m 644 docs/man/poolcounterd.1 $(DESTDIR)$(PREFIX)/share/man/man1/poolcounterd.1
	install -D -m 644 docs/completions/poolcounterd.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/poolcounterd
	install -D -m 644 docs/completions/_poolcounterd $(DESTDIR)$(ZSH_COMPLETIONS)/_poolcounterd
	install -D -m 644 docs/completions/poolcounterd.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/poolcounterd.fish
	install -D -m 644 systemd/poolcounter.socket $(DESTDIR)$(UNIT_DIR)/poolcounter.socket
	sed 's,=/usr/bin/,=$(UNIT_BINDIR)/,' systemd/poolcounter.service > $(DESTDIR)$(UNIT_DIR)/poolcounter.service
	chmod 644 $(DESTDIR)$(UNIT_DIR)/poolcounter.service

# The sources that git knows, and vendor/ beside them.
dist-tree:
	rm -rf $(DIST)
	mkdir -p $(DIST)
	git ls-files -z | xargs -0 cp -t $(DIST) --parents -P
	$(CARGO) vendor -q --locked $(DIST)/vendor > /dev/null

dist: dist-tree ## source tarball with its dependencies, to build offline
	XZ_OPT='-T2 -4' $(TAR) -C target/dist -cJf $(DIST).tar.xz $(notdir $(DIST))
	@echo $(DIST).tar.xz

deb: dist-tree ## the Debian package, into target/deb
	rm -rf target/deb
	mkdir -p target/deb
	mv $(DIST) target/deb/
	target/deb/$(notdir $(DIST))/debian/build-package
	@ls -s target/deb/*.deb

static: ## one static binary with man page and unit, as a tarball to unpack in /usr/local
	rm -rf $(STATIC)
	-rustup -q target add $(STATIC_TARGET)
	CARGO_PROFILE_RELEASE_STRIP=true $(CARGO) build --release --locked --target $(STATIC_TARGET)
	$(MAKE) install BINARY=target/$(STATIC_TARGET)/release/poolcounterd DESTDIR=$(CURDIR)/$(STATIC) PREFIX= UNIT_BINDIR=/usr/local/bin
	install -D -m 644 -t $(STATIC)/share/doc/poolcounterd $(wildcard README.md) LICENSE-MIT LICENSE-APACHE
	$(TAR) -C target/static -czf $(STATIC).tar.gz $(notdir $(STATIC))
	@ls -s $(STATIC).tar.gz

test-package: ## the package in booted containers: install, upgrade, crash, purge (root)
	tests/package/run
# --- end of installing and packaging -----------------------------------------

# --- Instruction counts ------------------------------------------------------
.PHONY: bench-instructions

bench-instructions: ## count the engine's instructions; fails where they rose by over 5 %
	$(CARGO) build --release --locked --manifest-path bench/Cargo.toml --bin instructions
	VALGRIND="$$(bench/fetch-valgrind.sh)" bench/target/release/instructions $(RECORD)

test: bench-instructions
# --- end of instruction counts -----------------------------------------------

# --- Torture -----------------------------------------------------------------
TORTURE_SECONDS ?= 600

.PHONY: torture

torture: ## torture the daemon for TORTURE_SECONDS, TORTURE_SEED repeats a round
	TORTURE_SECONDS=$(TORTURE_SECONDS) $(CARGO) test --locked --test torture -- --nocapture
# --- end of torture ----------------------------------------------------------
