#!/usr/bin/env bash
# Installs what thumbd needs to be built and tried, where it is missing: a C compiler, Redis or Valkey, MariaDB or MySQL.
# Silent when all is there. Starts and enables no service, and touches none that runs.
set -euo pipefail

PATH=$PATH:/usr/sbin:/usr/local/sbin

have() { command -v "$1" >/dev/null 2>&1; }
have_c() { have cc && [ -n "$(cc -print-file-name=crt1.o | grep /)" ]; }
have_redis() { have redis-server || have valkey-server; }
# mariadb-install-db calls my_print_defaults, which is in the client package.
have_sql() {
    if have mariadbd || { have mysqld && mysqld --version 2>/dev/null | grep -q MariaDB; }; then
        { have mariadb-install-db || have mysql_install_db; } && have my_print_defaults
    else
        have mysqld
    fi
}

if ! have cargo; then
    echo "install-deps: Rust is missing: see https://rustup.rs" >&2
    exit 1
fi

packages=()
have_c || packages+=(gcc libc6-dev)
have make || packages+=(make)
have_redis || packages+=(redis-server)
have_sql || packages+=(mariadb-server-core mariadb-client-core)
[ ${#packages[@]} -gt 0 ] || exit 0

if ! have apt-get; then
    echo "install-deps: no apt-get here; install the equivalents of: ${packages[*]}" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! have sudo; then
        echo "install-deps: as root: apt-get install --no-install-recommends ${packages[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

log=$(mktemp)
policy=/usr/sbin/policy-rc.d
own_policy=no
cleanup() {
    if [ "$own_policy" = yes ]; then "${as_root[@]}" rm -f "$policy"; fi
    rm -f "$log"
}
trap cleanup EXIT

# Runs quietly; what it said is shown only if it fails.
quietly() {
    if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" >"$log" 2>&1; then
        cat "$log" >&2
        echo "install-deps: failed: $*" >&2
        exit 1
    fi
}

echo "install-deps: installing ${packages[*]}" >&2
quietly apt-get -qq update
if ! apt-cache show redis-server >/dev/null 2>&1; then
    packages=("${packages[@]/#redis-server/valkey-server}")
fi

# Debian's packages start their service unless this script says no (101).
if [ ! -e "$policy" ]; then
    own_policy=yes
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi
quietly apt-get -qq install --yes --no-install-recommends --no-upgrade --no-remove "${packages[@]}"

# They also enable it for the next boot; nothing of ours needs that.
for service in redis-server valkey-server; do
    case " ${packages[*]} " in
        *" $service "*)
            "${as_root[@]}" deb-systemd-helper disable "$service.service" >/dev/null 2>&1 || true
            "${as_root[@]}" update-rc.d "$service" disable >/dev/null 2>&1 || true
            ;;
    esac
done
