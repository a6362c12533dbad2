#!/usr/bin/env bash
# Opens the pages at /ui and /docs in headless Chromium, against a thumbd with servers of its own: tests/browser. Installs Chromium and
# its driver where they are missing. UPDATE_SCREENSHOTS=1 takes the pictures in docs/images anew.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/line.sh

have() { command -v "$1" >/dev/null 2>&1; }
browser() { type -P chromium || type -P chromium-browser || type -P google-chrome; }

if ! browser >/dev/null || ! have chromedriver; then
    if ! have apt-get; then
        echo "browser: no apt-get here; install Chromium and chromedriver" >&2
        exit 1
    fi
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    echo "browser: installing chromium chromium-driver" >&2
    "${as_root[@]}" apt-get -qq update
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends \
        chromium chromium-driver fonts-dejavu-core >/dev/null
fi
"${CARGO:-cargo}" build --quiet

work=$(mktemp -d)
server= demo= driver=
stop() {
    for one in $driver $demo $server; do
        kill -TERM "$one" 2>/dev/null || true
        wait "$one" || true
    done
    rm -rf "$work"
}
trap stop EXIT

export SERVICE_KEY=browser-service-key ADMIN_TOKEN=browser-admin-token
# Slices that no test outlives: only the test flushes.
THUMBD_SERVICE_KEY=$SERVICE_KEY THUMBD_ADMIN_TOKEN=$ADMIN_TOKEN THUMBD_LISTEN=127.0.0.1:0 THUMBD_SLICE_SECONDS=3600 \
    target/debug/thumbd dev --data "$work/data" >"$work/log" 2>&1 &
server=$!
# The demonstration is a test, too: of itself, and of the page where no token is set.
THUMBD_LISTEN=127.0.0.1:0 THUMBD=target/debug/thumbd setsid scripts/demo.sh >"$work/demo" 2>&1 &
demo=$!
chromedriver --port=0 >"$work/driver" 2>&1 &
driver=$!
SERVER_URL=$(line "$work/log" "thumbd serves on " "$server")
port=$(line "$work/driver" "started successfully on port " "$driver")
DEMO_URL=$(line "$work/demo" "open " "$demo" | cut -d ' ' -f 1)
DEMO_LOG=$work/demo
THUMBD=$PWD/target/debug/thumbd
CONFIG=$work/data/thumbd.toml
REDIS_SOCKET=$work/data/redis/socket
SERVER_PID=$server
export THUMBD CONFIG REDIS_SOCKET SERVER_PID SERVER_URL DEMO_URL DEMO_LOG DRIVER_URL=http://127.0.0.1:${port%.} CHROMIUM
CHROMIUM=$(browser)

python3 -B tests/browser/test_pages.py "$@"
# One test puts bytes into a slice that are no operation.
if grep -E ' (ERROR|WARN) ' "$work/log" | grep -v 'entries are in quarantine'; then
    echo "browser: thumbd complained" >&2
    exit 1
fi
