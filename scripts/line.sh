# Waits for programs that say in a log where they are; for other scripts to source.

# Prints what stands behind some words in a log, up to the line's end: line LOG WORDS PID. Fails, with the log, when the process ends
# before, or after two minutes.
line() {
    local text=
    for _ in $(seq 240); do
        text=$(sed -n "s/^.*$2//p" "$1" | head -n 1)
        [ -z "$text" ] || break
        kill -0 "$3" 2>/dev/null || break
        sleep 0.5
    done
    if [ -z "$text" ]; then
        cat "$1" >&2
        echo "$(basename "$0" .sh): no '$2'" >&2
        return 1
    fi
    echo "$text"
}
