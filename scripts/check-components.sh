#!/bin/sh
# Says which parts of the Rust toolchain `make check` still needs.
set -eu

for tool in rustfmt clippy; do
    case $tool in
        rustfmt) command="fmt" ;;
        *) command=$tool ;;
    esac
    if ! cargo "$command" --version >/dev/null 2>&1; then
        echo "check: $tool is missing: rustup component add $tool" >&2
        exit 1
    fi
done
