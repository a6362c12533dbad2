#!/usr/bin/env bash
# Sends generated requests to a thumbd with servers of its own, and holds its answers against /openapi.json: no 500, no status,
# header or body that is not described. EXAMPLES is how many requests for each call (100).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/line.sh

version=4.32.5
tools=$PWD/target/schemathesis
thumbd=target/debug/thumbd
work=$(mktemp -d)
server=

stop() {
    if [ -n "$server" ]; then
        kill -TERM "$server" 2>/dev/null || true
        wait "$server" || true
    fi
    rm -rf "$work"
}
trap stop EXIT

if ! "$tools/bin/schemathesis" --version 2>/dev/null | grep -qF "$version"; then
    python3 -m venv "$tools"
    "$tools/bin/pip" --quiet install "schemathesis==$version"
fi
"${CARGO:-cargo}" build --quiet

export SERVICE_KEY=contract-service-key ADMIN_TOKEN=contract-admin-token
THUMBD_SERVICE_KEY=$SERVICE_KEY THUMBD_ADMIN_TOKEN=$ADMIN_TOKEN THUMBD_LISTEN=127.0.0.1:0 \
    "$thumbd" dev --data "$work/data" >"$work/log" 2>&1 &
server=$!
url=$(line "$work/log" "thumbd serves on " "$server")

cp scripts/schemathesis.toml "$work/"
# It writes what it found into the directory where it is started.
(cd "$work" && "$tools/bin/schemathesis" run "$url/openapi.json" --continue-on-failure --max-examples "${EXAMPLES:-100}" --no-color)
if grep -E ' (ERROR|WARN) ' "$work/log"; then
    echo "schemathesis: thumbd complained" >&2
    exit 1
fi
