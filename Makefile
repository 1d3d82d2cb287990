# `make run` and `make test` are enough to start; `make help` lists the rest.
PREFIX ?= /usr/local
CARGO ?= cargo
# Build here, whatever the environment and cargo's configuration say.
export CARGO_TARGET_DIR := $(CURDIR)/target
unexport CARGO_BUILD_TARGET
# The same sources give the same bits everywhere: release builds have no path of the builder in them. The last one
# is that of the standard library's sources, where rustup has installed them.
# Cargo splits this variable at the byte 1F, and RUSTFLAGS at spaces, which a folder's name may have.
run programs target/release/poolcounterd target/release/poolcounter bench bench-instructions test-load: \
	export CARGO_ENCODED_RUSTFLAGS = $(subst $() ,$(BYTE_1F),$(strip $(RUSTFLAGS) $(REMAP)))$(CURDIR)=.$(BYTE_1F)$\
	$(REMAP)$(or $(CARGO_HOME),$(HOME)/.cargo)=cargo$(BYTE_1F)$\
	$(REMAP)$(shell exec 2> /dev/null; rustc --print sysroot)/lib/rustlib/src/rust=/rustc/$(RUSTC_COMMIT)
REMAP = --remap-path-prefix=
BYTE_1F := $(shell printf '\037')
RUSTC_COMMIT = $(shell exec 2> /dev/null; rustc -vV | sed -n 's/^commit-hash: //p')
# More arguments for the daemon of `make run`: make run ARGS="-p 7532"
ARGS ?=
FUZZ_SECONDS ?= 30
SEEDS ?= 20000
# What is built here and not shipped.
OTHER_WORKSPACES = bench fuzz
FUZZ_TARGETS = $(basename $(notdir $(wildcard fuzz/targets/*.rs)))
# Most tests wait for a daemon or a timer, so more of them run at a time than there are
# cores.
export RUST_TEST_THREADS ?= 8
# Fails if the program or cargo command $1 is missing, and prints how to get it ($2).
need = @$(1) --version > /dev/null 2>&1 || { echo "$(1) is missing: $(2)" >&2; exit 1; }

# In the source tarball that `make dist` makes: vendor/ has what builds the programs and
# tests the daemon and the engine, and nothing for the other tests.
IS_TARBALL := $(wildcard vendor)

.PHONY: help run test lint bench clean locks reference tools rust checkout

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

# The port to print: the one in ARGS, if any.
RUN_PORT = $(or $(shell echo ' $(ARGS)' | sed -nE 's/.* (-p|--port)[ =]?([0-9]+).*/\2/p'),7531)

run: rust ## build, and serve on localhost until Ctrl-C; ARGS="-p 7532" for another port
	$(CARGO) build --release --locked --workspace
	@echo
	@echo "  In another terminal (nc is in Debian's netcat-openbsd):"
	@echo "    echo 'STATS FULL' | nc -N localhost $(RUN_PORT)"
	@printf '%s\n' "    printf 'ACQ4ME job:report 1 10 5\nRELEASE\n' | nc -N localhost $(RUN_PORT)"
	@echo "    target/release/poolcounter -s 127.0.0.1:$(RUN_PORT) run job:report -- echo made the report"
	@echo
	target/release/poolcounterd $(ARGS)

ifdef IS_TARBALL
test: rust
	$(CARGO) test --locked --lib
	$(CARGO) test --locked -p poolcounter-engine
	@echo "These are the daemon's unit tests and the engine's tests. The others need more crates: they run in a git checkout."

checkout:
	@echo "This is a source tarball, which has the crates for 'make test' only. This target needs a git checkout." >&2; exit 1
else
test: rust tools ## run the pass/fail tests; measurements are in test-all
	$(CARGO) test --locked --workspace --no-run
	@# The simulation computes, and most of the others wait: beside each other they take a quarter less.
	@# A script that starts this in the background makes it ignore SIGINT and SIGQUIT, which tests send.
	@$(CARGO) test --locked --workspace --lib simulated_world > target/simulation.log 2>&1 & simulation=$$!; \
		env --default-signal $(CARGO) test --locked --workspace -- --skip simulated_world; status=$$?; \
		wait $$simulation || status=$$?; cat target/simulation.log; exit $$status

# What needs more crates than a source tarball has.
checkout:
endif

lint: checkout rust ## check format, clippy and docs; warnings are errors
	$(call need,$(CARGO) fmt,rustup component add rustfmt; Debian 13: apt install rustfmt; 12: rustfmt-web)
	$(call need,$(CARGO) clippy,rustup component add clippy; that of Debian 13 is too old)
	for workspace in . $(OTHER_WORKSPACES); do $(CARGO) fmt --all --check --manifest-path $$workspace/Cargo.toml || exit 1; done
	for workspace in . $(OTHER_WORKSPACES); do \
		$(CARGO) clippy --locked --workspace --all-targets --manifest-path $$workspace/Cargo.toml -- -D warnings || exit 1; done
	@# --all-targets skips targets with `test = false`, as `cargo test` does.
	$(CARGO) clippy --locked --test load --test browser -- -D warnings
	@# Each pure crate with the features of its dependencies that it asks for itself.
	for crate in protocol engine schema reports; do $(CARGO) clippy --locked -p poolcounter-$$crate -- -D warnings || exit 1; done
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items

bench: checkout reference ## compare with Debian's daemon and a minimal server: prints tables
	$(CARGO) run --release --locked --manifest-path bench/Cargo.toml -- $(BENCH_FLAGS)

locks: # after a change of Cargo.lock: the same versions for the other workspaces
	for workspace in $(OTHER_WORKSPACES); do cp Cargo.lock $$workspace/ \
		&& $(CARGO) metadata --format-version 1 --manifest-path $$workspace/Cargo.toml > /dev/null || exit 1; done

tools: # get what the tests need besides Rust, or say how
	@tests/support/fetch-tools.sh

RUST_VERSION := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

rust:
	$(call need,$(CARGO),README.md says what to install)
	@$(CARGO) --version | { read -r _ version _; \
		printf '%s\n' $(RUST_VERSION) "$$version" | sort -VC || \
		{ echo "Rust $(RUST_VERSION) is needed, this is $$version: README.md says what to install" >&2; exit 1; }; }

reference: ## fetch Debian's C daemon for comparison
	@tests/support/fetch-reference.sh

clean: ## remove build results
	$(CARGO) clean

# --- Installing and packaging ------------------------------------------------
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p;/^version/q' Cargo.toml)
BINARY ?= target/release/poolcounterd
CLIENT ?= target/release/poolcounter
UNIT_DIR ?= $(PREFIX)/lib/systemd/system
# Where the unit finds the binary, if not where it is installed now.
UNIT_BINDIR ?= $(PREFIX)/bin
ZSH_COMPLETIONS ?= $(PREFIX)/share/zsh/site-functions
DOC_DIR ?= $(PREFIX)/share/doc/poolcounterd
# The programs contain crates whose licences ask for their notices: debian/copyright has those of all.
LICENCES ?= LICENSE-MIT LICENSE-APACHE debian/copyright
DIST = target/dist/poolcounter-$(VERSION)
STATIC_TARGET = $(shell uname -m)-unknown-linux-musl
STATIC = target/static/poolcounterd-$(VERSION)-$(STATIC_TARGET)
# The same commit gives the same bits: all files of a tarball have one time, no owner, and no mode of
# the builder's umask. Files unpacked from such a tarball have that time.
TAR = tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
	--mtime=@$(shell if [ -e .git ]; then git log -1 --format=%ct; else stat -c %Y Cargo.toml; fi)

.PHONY: programs install install-client install-documents install-licences dist-tree copyright dist deb static release

# All that a shipped program is built from.
SOURCES = Cargo.lock $(wildcard Cargo.toml crates/*/Cargo.toml) $(shell find src crates/*/src -type f)

# Two builds: in one, the daemon would get the dependencies' features that only the command needs.
programs: rust ## build both programs, for a package, into target/release
	$(CARGO) build --release --locked $(CARGO_OPTIONS) -p poolcounterd
	$(CARGO) build --release --locked $(CARGO_OPTIONS) -p poolcounter-command

target/release/poolcounterd: $(SOURCES)
	$(CARGO) build --release --locked

install: $(BINARY) install-licences ## install below $(DESTDIR)$(PREFIX), by default /usr/local
	install -D -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/poolcounterd
	install -D -m 644 docs/man/poolcounterd.8 $(DESTDIR)$(PREFIX)/share/man/man8/poolcounterd.8
	install -D -m 644 docs/man/poolcounter.rules.5 $(DESTDIR)$(PREFIX)/share/man/man5/poolcounter.rules.5
	install -D -m 644 docs/completions/poolcounterd.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/poolcounterd
	install -D -m 644 docs/completions/_poolcounterd $(DESTDIR)$(ZSH_COMPLETIONS)/_poolcounterd
	install -D -m 644 docs/completions/poolcounterd.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/poolcounterd.fish
	install -D -m 644 systemd/poolcounter.socket $(DESTDIR)$(UNIT_DIR)/poolcounter.socket
	sed 's,=/usr/bin/,=$(UNIT_BINDIR)/,' systemd/poolcounter.service > $(DESTDIR)$(UNIT_DIR)/poolcounter.service
	chmod 644 $(DESTDIR)$(UNIT_DIR)/poolcounter.service

target/release/poolcounter: $(SOURCES)
	$(CARGO) build --release --locked -p poolcounter-command

install-client: $(CLIENT) install-licences ## install the command poolcounter below $(DESTDIR)$(PREFIX)
	install -D -m 755 $(CLIENT) $(DESTDIR)$(PREFIX)/bin/poolcounter
	install -D -m 644 docs/man/poolcounter.1 $(DESTDIR)$(PREFIX)/share/man/man1/poolcounter.1
	install -D -m 644 docs/completions/poolcounter.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/poolcounter
	install -D -m 644 docs/completions/_poolcounter $(DESTDIR)$(ZSH_COMPLETIONS)/_poolcounter
	install -D -m 644 docs/completions/poolcounter.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/poolcounter.fish

# Documents and what they link to, in the same folders as here: those for users, not docs/development.
DOCUMENTS = $(wildcard README.md SECURITY.md $(foreach reader,guide operate reference,docs/$(reader)/*.md) docs/*/*.json \
	docs/guide/container/* docs/guide/mediawiki/* docs/guide/rpm/* docs/guide/several-daemons/*)
# Half a megabyte, which the Debian package does without.
SCREENSHOTS = $(wildcard docs/guide/page/*)
WITHOUT_SCREENSHOTS = -e 's,!\[[^]]*\]\(page/[^)]*\),(The source has pictures of it in docs/guide/page.),' -e 's,\[([^]]*)\]\(page/[^)]*\),\1,g'
WITHOUT_DEVELOPMENT = -e 's,\[([^]]*)\]\((\.\./|docs/)development/[^)]*\),\1,g'
# The Debian package puts these into its examples folder.
EXAMPLES = $(wildcard monitoring/* systemd/examples/*)

install-documents: install-licences ## install documents and examples below $(DESTDIR)$(DOC_DIR)
	for file in $(DOCUMENTS) $(SCREENSHOTS) $(EXAMPLES); do install -D -m 644 $$file $(DESTDIR)$(DOC_DIR)/$$file || exit 1; done
	@# What is not installed loses its links.
	sed -Ezi $(WITHOUT_DEVELOPMENT) $(if $(SCREENSHOTS),,$(WITHOUT_SCREENSHOTS)) $(addprefix $(DESTDIR)$(DOC_DIR)/,$(filter %.md,$(DOCUMENTS)))

# A part of the three above. The Debian packages have a file copyright of their own: there, LICENCES is empty.
install-licences:
	$(if $(LICENCES),install -D -m 644 -t $(DESTDIR)$(DOC_DIR) $(LICENCES))

# The sources in git, without what no package needs, with vendor/ and the .cargo/ that makes
# cargo use it: debian/vendor.py. In an unpacked tarball, that has been done already.
dist-tree: rust
	$(if $(IS_TARBALL),,$(call need,python3,apt install python3))
	rm -rf $(DIST)
	mkdir -p $(DIST)
	{ if [ -e .git ]; then git ls-files -z; else find \( -type f -o -type l \) -not -path './target/*' -print0; fi; } \
		| xargs -0 cp -t $(DIST) --parents -P
	$(if $(IS_TARBALL),,CARGO="$(CARGO)" debian/vendor.py $(DIST))

copyright: dist-tree ## write debian/copyright anew, from what the vendored crates say
	debian/copyright.py $(DIST) > target/copyright
	mv target/copyright debian/copyright

dist: dist-tree ## source tarball with its dependencies, to build offline
	XZ_OPT='-T2 -4' $(TAR) -C target/dist -cJf $(DIST).tar.xz $(notdir $(DIST))
	@echo $(DIST).tar.xz

deb: dist-tree ## the Debian packages, into target/deb
	rm -rf target/deb
	mkdir -p target/deb
	mv $(DIST) target/deb/
	target/deb/$(notdir $(DIST))/debian/build-package
	@ls -s target/deb/*.deb

static: rust ## static binaries with man pages, licences and unit, as a tarball to unpack in /usr/local
	@[ -d "$$(rustc --print target-libdir --target $(STATIC_TARGET))" ] || { \
		command -v rustup > /dev/null && rustup -q target add $(STATIC_TARGET); } || { \
		echo "Rust's library for $(STATIC_TARGET) is missing; rustup has it, Debian has not: https://rustup.rs" >&2; exit 1; }
	rm -rf $(STATIC)
	CARGO_PROFILE_RELEASE_STRIP=true $(MAKE) programs CARGO_OPTIONS="--target $(STATIC_TARGET)"
	$(MAKE) install BINARY=target/$(STATIC_TARGET)/release/poolcounterd DESTDIR=$(CURDIR)/$(STATIC) PREFIX= UNIT_BINDIR=/usr/local/bin
	$(MAKE) install-client CLIENT=target/$(STATIC_TARGET)/release/poolcounter DESTDIR=$(CURDIR)/$(STATIC) PREFIX=
	$(MAKE) install-documents DESTDIR=$(CURDIR)/$(STATIC) PREFIX=
	@# Files alone: a member for a folder would give the one below /usr/local its owner and mode, and replace a link to one.
	find $(STATIC) ! -type d -printf '$(notdir $(STATIC))/%P\0' | LC_ALL=C sort -z \
		| $(TAR) -C target/static --null -T - -czf $(STATIC).tar.gz
	@ls -s $(STATIC).tar.gz

# What must pass before the tag; CHECK=true if it has passed already.
CHECK ?= .ci/run
# What is uploaded.
RELEASED ?= dist static deb

release: checkout rust ## check, commit, tag and build VERSION=2.0.0, into target/upload; publishes nothing
	$(if $(filter command%,$(origin VERSION)),,$(error which one: make release VERSION=$(VERSION)))
	$(call need,python3,apt install python3)
	@debian/release.py "$(VERSION)" "$(CHECK)" $(RELEASED)
# --- end of installing and packaging -----------------------------------------

demo: rust ## watch 60 readers of an expired page without and with the daemon (root)
	$(call need,python3,apt install python3)
	@CARGO="$(CARGO)" tests/mediawiki/demo.py

.PHONY: demo

# --- Slow tests and measurements ----------------------------------------------
# --record writes the figures into docs/.
MEDIAWIKI_FLAGS ?=
CLUSTER_FLAGS ?=

.PHONY: test-all test-seeds test-suite test-load test-package test-architectures test-mediawiki test-cluster test-documents test-browser test-fuzz simulate mutants

# One after the other: measurements need the machine to themselves.
test-all: checkout ## make test and the parts below, one after the other (root)
	@times=; for part in test test-seeds test-suite test-load test-browser test-fuzz simulate test-documents test-mediawiki test-cluster test-architectures test-package; do \
		start=$$(date +%s); \
		$(MAKE) $$part || { echo "failed: make $$part" >&2; exit 1; }; \
		times="$$times$$part $$(($$(date +%s) - start)) s\n"; \
	done; printf "$$times"

test-seeds: checkout rust tools ## more seeds of what make test tries with a few
	WRAPPER_SCRIPTS=200 $(CARGO) test --locked --test restart wrappers
	RELOADS_SEEDS=40 PASSED_SEEDS=150 $(CARGO) test --locked --test daemon -- reloads passed
	DENIED_CALLS=all $(CARGO) test --locked --test daemon --test client -- denied_calls --nocapture

test-suite: rust target/release/poolcounterd ## the C daemon's own tests, from Debian's sources, with ours (root)
	$(call need,python3,apt install python3)
	tests/reference/suite

test-load: checkout rust tools ## crowds, floods, memory, pauses: prints figures and their bounds
	$(CARGO) test --locked --release --test load -- --test-threads=1 --nocapture
	$(CARGO) test --locked --release --manifest-path bench/Cargo.toml

test-browser: checkout rust ## the page at / in Chromium
	@tests/support/fetch-tools.sh browser
	$(CARGO) test --locked --test browser

test-fuzz: checkout ## fuzz each target for FUZZ_SECONDS
	@# A fixed seed: chance should not fail an innocent change.
	@for target in $(FUZZ_TARGETS); do \
		echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
		FUZZ_SEED=1 fuzz/run.sh $$target $(FUZZ_SECONDS) > target/fuzz-$$target.log 2>&1 \
			|| { tail -n 50 target/fuzz-$$target.log; exit 1; }; \
		grep -a stat::number_of_executed_units target/fuzz-$$target.log; \
	done

simulate: rust ## the whole server in a simulated world: SEEDS=20000 scripts
	SERVER_SIM_SEEDS=$(SEEDS) SERVER_SIM_TURNS=1000 $(CARGO) test --locked --config profile.test.opt-level=3 --lib simulated_world -- --nocapture
	RUN_WALK_SEEDS=$(SEEDS)00 $(CARGO) test --locked -p poolcounter-command --lib no_walk

mutants: checkout rust tools ## which changes of the code no test notices: PARTS="engine run"
	$(call need,python3,apt install python3)
	tests/mutants/run $(PARTS)

test-mediawiki: rust target/release/poolcounterd target/release/poolcounter ## a real MediaWiki asks Debian's daemon and ours (root)
	$(call need,python3,apt install python3)
	tests/mediawiki/run $(MEDIAWIKI_FLAGS)

test-cluster: rust target/release/poolcounterd target/release/poolcounter ## three daemons and 40 clients: restarts, drains, cuts, proxies (root)
	$(call need,python3,apt install python3)
	tests/cluster/run $(CLUSTER_FLAGS)

test-documents: rust target/release/poolcounterd target/release/poolcounter ## the documents' commands print what they show (root)
	$(call need,python3,apt install python3)
	$(call need,jq,apt install jq)
	tests/documents/run

test-package: checkout ## the package in booted containers: install, upgrade, crash, purge (root)
	$(call need,python3,apt install python3)
	tests/package/run

test-architectures: checkout rust ## compile, test, serve on i386, and on an emulated machine of arm64 (root)
	$(call need,python3,apt install python3)
	tests/architectures/run
# --- end of slow tests and measurements ----------------------------------------

# --- Instruction counts ------------------------------------------------------
.PHONY: bench-instructions

bench-instructions: checkout ## count instructions of a lock, a wait, a wake, a line; fails if they rise by more than 5 %
	$(CARGO) build --release --locked
	$(CARGO) build --release --locked --manifest-path bench/Cargo.toml --bin instructions
	@VALGRIND=$$(bench/fetch-valgrind.sh 2> target/fetch-valgrind.log) || { VALGRIND=valgrind; \
		echo "valgrind can't be fetched, see target/fetch-valgrind.log: sudo apt-get install valgrind" >&2; }; \
		export VALGRIND; target/release/instructions $(RECORD)
# --- end of instruction counts -----------------------------------------------
