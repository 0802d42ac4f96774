# What a developer, a packager and CI call. `make test` works on a fresh machine.

CARGO  ?= cargo
PREFIX ?= /usr
DESTDIR ?=
# The profile of what is installed and packaged, and the binary: another one is taken as it is.
PROFILE ?= release
BINARY  ?= target/$(PROFILE)/cronlatch
# A static binary runs on every distribution, and in an empty container.
STATIC_TARGET ?= $(shell uname -m)-unknown-linux-musl
# Where zsh looks for completions: Debian's place. Below PREFIX.
ZSHDIR ?= share/zsh/vendor-completions
# Where the unit looks for the job list; the tree under /usr is the packager's, this the operator's.
SYSCONFDIR ?= /etc

# The tests start servers and daemons and then mostly wait for them: more at once than there are
# processors.
export RUST_TEST_THREADS ?= 6
# The generated cases of property tests are the same each time; another number makes others.
export PROPTEST_RNG_SEED ?= 7

.PHONY: all test needs lint deny bench bench-instructions bench-peers campaign simulate soak dist install help binary deb rpm musl test-packages test-mixed

all:
	$(CARGO) build --locked --release

# Smaller than a release build, and slower to build.
dist:
	$(CARGO) build --locked --profile dist

help:
	@echo 'make            builds the release binary, target/release/cronlatch'
	@echo 'make dist       builds the smaller binary of packages, target/dist/cronlatch'
	@echo 'make test       installs what the tests need (apt-get), builds, runs every test'
	@echo 'make lint       formatting, clippy and documentation, warnings are errors'
	@echo 'make campaign   a long fault campaign: KIND=redis SECONDS=600 SEED=7'
	@echo 'make deny       licences and sources of dependencies (needs cargo-deny)'
	@echo 'make simulate   simulated fleets: SECONDS=600 SEED=7; SECONDS=0 looks at one seed'
	@echo 'make soak       50 jobs a second on damaged keys: SECONDS=1800; nothing may grow'
	@echo 'make bench      runs every benchmark and prints figures beside their floors'
	@echo 'make bench-peers    this program beside others (docs/benchmarks.md): ROUNDS=3; ROUNDS=1 for a trial'
	@echo 'make bench-instructions  counts instructions (valgrind) and compares; ACCEPT=1 keeps the counts'
	@echo 'make deb, rpm   packages of the dist binary, in target/packages'
	@echo 'make musl       a static binary'
	@echo 'make test-mixed     runs daemons of the version PREVIOUS=COMMIT beside those of this one'
	@echo 'make test-packages  installs the packages in whole systems, runs the container (root)'
	@echo 'make install    installs into $$(DESTDIR)$$(PREFIX)'

# redis-server, libfaketime and systemd: the tests start their own servers and managers.
needs:
	@sh tests/needs.sh

test: needs
	$(CARGO) test --locked

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --lib --no-default-features -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --locked --no-deps

# Not part of .ci/run: building cargo-deny takes longer than all tests.
deny:
	$(CARGO) deny --all-features check

# KIND=redis, sqlite, sentinel, cluster or redlock, SECONDS of faults, SEED to repeat an order of faults.
campaign: needs
	$(CARGO) test --locked --test campaign -- --ignored --nocapture a_long_campaign

# Many seeds from SEED on, for SECONDS; with SECONDS=0 that seed alone (docs/simulate.md).
simulate:
	$(CARGO) test --locked --profile simulate --test simulate -- --ignored --nocapture a_long_simulation

# Runs daemons of another version beside those of this one. PREVIOUS is a commit or a tag.
PREVIOUS ?= $(shell git describe --tags --abbrev=0 2>/dev/null)
test-mixed: needs
	@test -n '$(PREVIOUS)' || { echo 'no tag: name the other version with PREVIOUS=COMMIT' >&2; exit 1; }
	rm -rf target/previous/src && mkdir -p target/previous/src
	git archive $(PREVIOUS) | tar -x -C target/previous/src
	$(CARGO) build --locked --manifest-path target/previous/src/Cargo.toml --target-dir target/previous/build
	CRONLATCH_PREVIOUS='$(CURDIR)/target/previous/build/debug/cronlatch' \
		$(CARGO) test --locked --test it -- --ignored mixed::

# Fifty jobs a second for SECONDS (480 or more) on a store with damaged keys; nothing may grow.
soak: needs
	$(CARGO) test --locked --test it -- --ignored --nocapture a_soak

bench: needs
	$(CARGO) bench --locked --bench figures --bench kinds

# Fails if a part of the program executes more instructions than benches/instructions/counts.txt
# allows. ACCEPT=1 writes the counts of this build there instead.
bench-instructions:
	@sh tests/needs.sh valgrind
	$(CARGO) bench --locked --bench instructions -- $(if $(ACCEPT),--accept)

# This program beside what people use today, at pinned versions below target/peers; writes
# docs/benchmarks.md. ROUNDS=1 is a trial; benches/peers/bench.py names the other settings.
bench-peers:
	@sh tests/needs.sh
	python3 -B benches/peers/bench.py

# Packages have the smaller binary.
binary deb rpm musl test-packages: PROFILE = dist

# Unless BINARY names another one.
binary:
ifeq ($(origin BINARY),file)
	$(CARGO) build --locked --profile $(PROFILE)
endif

deb: binary
	sh packaging/build-deb.sh '$(BINARY)' target/packages

rpm: binary
	sh packaging/build-rpm.sh '$(BINARY)' target/packages

# Whole systems: root and the network are needed (CONTRIBUTING.md).
test-packages: binary musl
	sh packaging/test-deploy.sh '$(BINARY)'
	sh packaging/test.sh '$(BINARY)' target/$(STATIC_TARGET)/$(PROFILE)/cronlatch

# Needs the target of Rust (rustup target add) and a C compiler for musl (Debian: musl-tools).
musl:
	$(CARGO) build --locked --profile $(PROFILE) --target $(STATIC_TARGET)
	@echo target/$(STATIC_TARGET)/$(PROFILE)/cronlatch

install:
	test -x '$(BINARY)' || $(CARGO) build --locked --profile $(PROFILE)
	install -D -m 0755 '$(BINARY)' '$(DESTDIR)$(PREFIX)/bin/cronlatch'
	install -D -m 0644 systemd/cronlatch.service '$(DESTDIR)$(PREFIX)/lib/systemd/system/cronlatch.service'
	install -D -m 0644 systemd/sysusers.d/cronlatch.conf '$(DESTDIR)$(PREFIX)/lib/sysusers.d/cronlatch.conf'
	install -D -m 0644 systemd/tmpfiles.d/cronlatch.conf '$(DESTDIR)$(PREFIX)/lib/tmpfiles.d/cronlatch.conf'
	install -D -m 0644 jobs.example.yaml '$(DESTDIR)$(PREFIX)/share/doc/cronlatch/jobs.example.yaml'
	install -D -m 0644 jobs.schema.json '$(DESTDIR)$(PREFIX)/share/doc/cronlatch/jobs.schema.json'
	install -D -m 0644 -t '$(DESTDIR)$(PREFIX)/share/doc/cronlatch' README.md CHANGELOG.md LICENSE
	install -D -m 0644 -t '$(DESTDIR)$(PREFIX)/share/doc/cronlatch/docs' docs/*.md docs/*.json
	for plot in docs/benchmarks/*.svg; do test ! -e "$$plot" || \
	  install -D -m 0644 -t '$(DESTDIR)$(PREFIX)/share/doc/cronlatch/docs/benchmarks' "$$plot" || exit 1; done
	install -d '$(DESTDIR)$(PREFIX)/share/doc/cronlatch/drop-ins'
	install -m 0644 systemd/drop-ins/*.conf '$(DESTDIR)$(PREFIX)/share/doc/cronlatch/drop-ins/'
	install -d '$(DESTDIR)$(PREFIX)/share/man/man1' '$(DESTDIR)$(PREFIX)/share/bash-completion/completions' \
	  '$(DESTDIR)$(PREFIX)/$(ZSHDIR)' '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d'
	'$(BINARY)' man '$(DESTDIR)$(PREFIX)/share/man/man1'
	'$(BINARY)' completions bash > '$(DESTDIR)$(PREFIX)/share/bash-completion/completions/cronlatch'
	'$(BINARY)' completions zsh > '$(DESTDIR)$(PREFIX)/$(ZSHDIR)/_cronlatch'
	'$(BINARY)' completions fish > '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/cronlatch.fish'
	install -d -m 0750 '$(DESTDIR)$(SYSCONFDIR)/cronlatch'
