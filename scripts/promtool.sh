#!/usr/bin/env bash
# Tries ops/alerts.yml with ops/alerts_test.yml, and whether the expressions of the dashboard are PromQL. Where promtool is missing,
# it is unpacked from Debian's package into target/promtool (19 MB): nothing is installed or started.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "promtool: $1" >&2
    exit 1
}

tools=$PWD/target/promtool
promtool=$(command -v promtool || true)
[ -n "$promtool" ] || promtool=$tools/promtool
if ! [ -x "$promtool" ]; then
    for program in apt-get dpkg-deb; do
        command -v "$program" >/dev/null 2>&1 || fail "no promtool and no $program here; install Prometheus's promtool"
    done
    rm -rf "$tools.partial"
    mkdir -p "$tools.partial" "$tools"
    trap 'rm -rf "$tools.partial"' EXIT
    if ! (cd "$tools.partial" && apt-get -qq -o APT::Sandbox::User=root download prometheus >log 2>&1); then
        cat "$tools.partial/log" >&2
        fail "Debian's package prometheus cannot be downloaded (apt-get update?)"
    fi
    dpkg-deb --fsys-tarfile "$tools.partial"/prometheus_*.deb | tar -x -C "$tools.partial" ./usr/bin/promtool
    mv "$tools.partial/usr/bin/promtool" "$promtool"
fi

"$promtool" check rules ops/alerts.yml
"$promtool" test rules ops/alerts_test.yml

# A text of JSON is one of YAML too, so the dashboard's expressions make rules.
rules=$(mktemp)
trap 'rm -rf "$rules" "$tools.partial"' EXIT
{
    printf 'groups:\n- name: dashboard\n  rules:\n'
    grep -o '"expr": ".*"' ops/grafana/thumbd.json |
        sed -e 's/\$__rate_interval/5m/g' -e 's/^"expr": /  - record: x\n    labels: {at: "@"}\n    expr: /' |
        awk '{ gsub(/@/, NR); print }'
} >"$rules"
"$promtool" check rules "$rules" >/dev/null || fail "an expression of ops/grafana/thumbd.json is not PromQL"
echo "promtool: the dashboard's expressions are PromQL"
