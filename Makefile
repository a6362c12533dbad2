# What a person runs by hand; .ci/run runs the same.

CARGO ?= cargo

.PHONY: run demo dist test test-mysql schemathesis promtool browser lint check check-all bench profiles torture deps fmt

# A complete thumbd on private servers. The data stay in .thumbd.
run: deps
	$(CARGO) build --release
	exec target/release/thumbd dev --data .thumbd

# The same with new data and real votes that come in at a visible pace, and a page to watch them: make demo RATE=500
RATE ?= 120
demo: deps
	$(CARGO) build --release
	RATE=$(RATE) exec scripts/demo.sh

# The program for servers, as target/dist/thumbd: smaller and faster than the one that `make run` builds, and slower to build.
dist: deps
	$(CARGO) build --locked --profile dist --bin thumbd

test: deps
	$(CARGO) test

# The tests that need servers, on a real MySQL instead of MariaDB. It is unpacked beside the system if it is missing.
MYSQL ?= .thumbd-mysql
test-mysql: deps
	scripts/install-mysql.sh $(MYSQL)
	THUMBD_TEST_MYSQLD=$(abspath $(MYSQL))/mysqld $(CARGO) test --test it

# The gate: nothing is merged that does not pass. The tests come last, so that their totals are what one sees.
check: lint
	$(CARGO) test

# The same with the tests that take long, and on both databases.
check-all: lint
	THUMBD_SLOW_TESTS=1 $(CARGO) test
	$(MAKE) promtool
	$(MAKE) schemathesis
	$(MAKE) browser
	$(MAKE) test-mysql

# Generated requests against a running thumbd: its answers must be as /openapi.json describes them. Needs Python 3 with venv, and
# fetches schemathesis into target: make schemathesis EXAMPLES=500
EXAMPLES ?= 100
schemathesis: deps
	EXAMPLES=$(EXAMPLES) scripts/schemathesis.sh

# The alerts, each tried, and the dashboard's expressions. Where promtool is missing it is unpacked into target, not installed.
promtool:
	scripts/promtool.sh

# The pages at /ui and /docs in headless Chromium, which it installs if it is missing. Needs Python 3. UPDATE_SCREENSHOTS=1 takes the
# pictures of the documentation anew.
browser: deps
	scripts/browser.sh

lint: deps
	scripts/check-components.sh
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps
	if command -v promtool >/dev/null 2>&1; then scripts/promtool.sh; fi
	if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny check bans licenses sources; fi

# A long mix of everything that can break, and a check of what clients were told: make torture SECONDS=600 SEED=7
SECONDS ?= 60
SEED ?= $(shell date +%s)
torture: deps
	THUMBD_TORTURE_SECONDS=$(SECONDS) THUMBD_TORTURE_SEED=$(SEED) $(CARGO) test --test it -- --exact torture::a_long_mix --nocapture

# One table of medians beside their yardsticks, about eight minutes; BENCH_SECONDS, BENCH_ROUNDS and BENCH_ONLY make it shorter.
bench: deps
	$(CARGO) bench --bench bench

# Sizes, start-up and CPU of what `make run` and `make dist` build, taking turns.
profiles: dist
	$(CARGO) build --release --bin thumbd
	scripts/profiles.py 5 target/release/thumbd target/dist/thumbd

# Installs what is missing: a C compiler, Redis, MariaDB's server programs.
deps:
	@scripts/install-deps.sh

fmt:
	$(CARGO) fmt
