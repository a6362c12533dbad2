#!/usr/bin/env python3
"""Compares programs: size, time until they are ready, CPU and time for the real votes as single calls. Programs take turns.

    scripts/profiles.py ROUNDS PROGRAM PROGRAM ...

Each round of a program has new private servers. CPU is that of thumbd alone, user and system.
"""

import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

VOTES = "tests/data/wiki-vote.csv.gz"
STARTS = 3
PATIENCE = 120
# `serve` does not start without; the servers go when a round ends.
KEYS = {"THUMBD_SERVICE_KEY": "profiles-service-key", "THUMBD_ADMIN_TOKEN": "profiles-admin-token"}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(program, words):
    """Starts a program and waits until it is ready: the process, its address, and how long that took."""
    port = free_port()
    environment = dict(os.environ, **KEYS, THUMBD_LISTEN=f"127.0.0.1:{port}", THUMBD_LOG="error")
    begun = time.monotonic()
    process = subprocess.Popen([program, *words], env=environment, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    while time.monotonic() - begun < PATIENCE and process.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/readyz", timeout=1).close()
            return process, url, time.monotonic() - begun
        except (urllib.error.URLError, OSError):
            time.sleep(0.001)
    stop(process)
    sys.exit(f"profiles: {program} {' '.join(words)} is not ready")


def stop(process):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    process.wait(PATIENCE)


def cpu(process):
    with open(f"/proc/{process.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(program, data, found):
    process, url, _ = start(program, ["dev", "--data", data])
    try:
        begun = time.monotonic()
        words = ["load", VOTES, "--kind", "candidate", "--url", url]
        environment = dict(os.environ, **KEYS)
        subprocess.run([program, *words], check=True, stdout=subprocess.DEVNULL, env=environment)
        found["load s"].append(time.monotonic() - begun)
        found["cpu s"].append(cpu(process))
        # Beside the one that runs, on its servers.
        for _ in range(STARTS):
            other, _, took = start(program, ["serve", "--config", f"{data}/thumbd.toml"])
            found["start ms"].append(took * 1000)
            stop(other)
    finally:
        stop(process)


def main():
    rounds, programs = int(sys.argv[1]), sys.argv[2:]
    found = {program: {"start ms": [], "cpu s": [], "load s": []} for program in programs}
    for _ in range(rounds):
        for program in programs:
            data = tempfile.mkdtemp()
            try:
                measure(program, data, found[program])
            finally:
                shutil.rmtree(data, ignore_errors=True)
    for program, columns in found.items():
        size = os.path.getsize(program) / 1e6
        row = [f"{name} {statistics.median(all):.2f} ({min(all):.2f}-{max(all):.2f})" for name, all in columns.items()]
        print(f"{program}: {size:.1f} MB,", ", ".join(row))


main()
