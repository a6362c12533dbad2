#!/usr/bin/env bash
# A real MySQL server beside the system: nothing is installed, enabled or started.
# usage: scripts/install-mysql.sh PREFIX     makes PREFIX/mysqld, to be run as it is: THUMBD_TEST_MYSQLD=PREFIX/mysqld
# Unpacks the newest of Debian's packages (sid) together with their own C library, so the machine's may be older.
# About 70 MB to download, 330 MB on disk. Silent when it is there.
set -euo pipefail

fail() {
    echo "install-mysql: $1" >&2
    exit 1
}

[ $# = 1 ] || fail "usage: scripts/install-mysql.sh PREFIX"
if [ -x "$1/mysqld" ] && "$1/mysqld" --version >/dev/null 2>&1; then
    exit 0
fi
[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] ||
    fail "only for Linux on x86_64; install MySQL 8.0 or newer yourself and set THUMBD_TEST_MYSQLD to its mysqld"
for program in apt-get dpkg; do
    command -v "$program" >/dev/null 2>&1 ||
        fail "no $program here; install MySQL 8.0 or newer yourself and set THUMBD_TEST_MYSQLD to its mysqld"
done
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || fail "$keyring is missing: apt-get install debian-archive-keyring"

mkdir -p "$1"
prefix=$(cd "$1" && pwd)
log=$prefix/install.log
# All in a folder of its own, which becomes the right one when it is whole.
partial=$prefix/partial
rm -rf "$partial"
mkdir -p "$partial/apt/state/lists/partial" "$partial/apt/cache/archives/partial" "$partial/root"
trap 'rm -rf "$partial"' EXIT

quietly() {
    if ! "$@" >>"$log" 2>&1; then
        cat "$log" >&2
        fail "failed: $*"
    fi
}

# The mirror that this machine uses already, or Debian's own.
targets=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null || true)
mirror=$(awk '$1 ~ /\/debian\/?$/ && !found++' <<<"$targets")
mirror=${mirror:-http://deb.debian.org/debian}

apt=$partial/apt
: >"$apt/state/status"
: >"$log"
echo "deb [arch=amd64 signed-by=$keyring] $mirror sid main" >"$apt/sources.list"
cat >"$apt/apt.conf" <<C
APT::Architecture "amd64"; APT::Architectures {"amd64";};
Dir::Etc::sourcelist "$apt/sources.list"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
Dir::State "$apt/state"; Dir::State::status "$apt/state/status"; Dir::Cache "$apt/cache";
APT::Install-Recommends "0"; APT::Sandbox::User "$(id -un)";
C
export APT_CONFIG=$apt/apt.conf

echo "install-mysql: unpacking MySQL into $prefix" >&2
quietly apt-get -qq update
quietly apt-get -qq -y install --download-only mysql-server-core
for deb in "$apt"/cache/archives/*.deb; do
    quietly dpkg -x "$deb" "$partial/root"
done
rm -rf "$prefix/root"
mv "$partial/root" "$prefix/root"

usr=$prefix/root/usr
lib=$usr/lib/x86_64-linux-gnu
share=$usr/share/mysql
# --no-defaults must stand first, so it stands here; what else the server needs is the caller's to say.
cat >"$partial/mysqld" <<W
#!/bin/sh
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$usr/sbin/mysqld" --no-defaults --basedir="$usr" \\
  --lc-messages-dir="$share" --character-sets-dir="$share/charsets" --plugin-dir="$usr/lib/mysql/plugin" \\
  --secure-file-priv=NULL "\$@"
W
chmod +x "$partial/mysqld"
"$partial/mysqld" --version >>"$log" 2>&1 || { cat "$log" >&2; fail "the server does not start"; }
mv "$partial/mysqld" "$prefix/mysqld"
