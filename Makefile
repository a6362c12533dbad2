# What a person runs by hand; .ci/run runs the same.

CARGO ?= cargo

.PHONY: run test check bench deps fmt

# A complete thumbd on private servers. The data stay in .thumbd.
run: deps
	$(CARGO) build --release
	exec target/release/thumbd dev --data .thumbd

test: deps
	$(CARGO) test

# The gate: nothing is merged that does not pass. The tests come last, so that their totals are what one sees.
check: deps
	scripts/check-components.sh
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps
	if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny check bans licenses sources; fi
	$(CARGO) test

# One table of medians beside their yardsticks, about eight minutes; BENCH_SECONDS, BENCH_ROUNDS and BENCH_ONLY make it shorter.
bench: deps
	$(CARGO) bench --bench bench

# Installs what is missing: a C compiler, Redis, MariaDB's server programs.
deps:
	@scripts/install-deps.sh

fmt:
	$(CARGO) fmt
