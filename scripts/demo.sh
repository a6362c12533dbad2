#!/usr/bin/env bash
# Shows thumbd at work: serves on private servers with new data, likes real votes at a pace that one can follow, and says each minute
# whether Redis and MySQL agree. Ctrl-C ends it. THUMBD is the program, RATE the likes a second, DEMO_SECONDS an end of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/line.sh

thumbd=${THUMBD:-target/release/thumbd}
rate=${RATE:-120}
votes=tests/data/wiki-vote.csv.gz
work=$(mktemp -d)
server= load=
stop() {
    trap - EXIT INT TERM
    # A second signal would end the server before its last flush: that is why it does not get the terminal's.
    for one in $load $server; do
        kill -TERM "$one" 2>/dev/null || true
        wait "$one" 2>/dev/null || true
    done
    rm -rf "$work"
    echo "demo: stopped, its data are removed"
}
trap stop EXIT
trap 'exit 0' INT TERM

setsid "$thumbd" dev --data "$work/data" >"$work/log" 2>&1 &
server=$!
url=$(line "$work/log" "thumbd serves on " "$server")
echo "demo: open $url/ui in a browser; no token is needed. Ctrl-C ends it."
echo "demo: $rate likes a second of kind candidate come in, and every 10 seconds a slice of them goes to MySQL: watch the lag fall."
echo "demo: try curl $url/v1/rankings/candidate"

setsid "$thumbd" load "$votes" --kind candidate --url "$url" --rate "$rate" >"$work/load" 2>&1 &
load=$!

# The check only reads, so it may run while likes come in.
begun=$SECONDS next=30
while kill -0 "$server" 2>/dev/null; do
    sleep 1
    passed=$((SECONDS - begun))
    ended=no
    if [ -n "${DEMO_SECONDS:-}" ] && [ "$passed" -ge "$DEMO_SECONDS" ]; then ended=yes; fi
    if [ "$passed" -ge "$next" ] || [ "$ended" = yes ]; then
        next=$((passed + 60))
        echo "demo: after $passed s, verify: $("$thumbd" verify --config "$work/data/thumbd.toml" --log error)"
    fi
    [ "$ended" = no ] || exit 0
    if [ -n "$load" ] && ! kill -0 "$load" 2>/dev/null; then
        wait "$load" || true
        load=
        echo "demo: all votes are in; it goes on serving until Ctrl-C:"
        cat "$work/load"
    fi
done
cat "$work/log" >&2
echo "demo: thumbd has ended" >&2
exit 1
