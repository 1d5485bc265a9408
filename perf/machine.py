"""The machine that a figure belongs to, and whether it is quiet enough for one."""

import os
import platform
import re
import subprocess
import time

LOCKED = ("redis", "fred", "rustis", "ringline", "ringline-redis", "tokio", "io-uring")


def describe(perf):
    """Machine, kernel, cpu, commit and versions, for the JSON file."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "commit": git(perf, "rev-parse", "HEAD"),
        "uncommitted": bool(git(perf, "status", "--porcelain")),
        "rustc": output(["rustc", "--version"], perf),
        "versions": versions(perf),
        "load_average": os.getloadavg(),
    }


def cpu_model():
    with open("/proc/cpuinfo") as text:
        found = re.search(r"^model name\s*: (.*)$", text.read(), re.M)
    return found[1] if found else "unknown"


def output(command, cwd):
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def git(perf, *arguments):
    return output(["git", *arguments], perf)


def versions(perf):
    """The locked versions of the peers and of what they run on."""
    with open(os.path.join(perf, "Cargo.lock")) as text:
        pairs = re.findall(r'^name = "([^"]+)"\nversion = "([^"]+)"', text.read(), re.M)
    return {name: version for name, version in pairs if name in LOCKED}


def cpu_times():
    """Busy and total time of all cpus since boot, in ticks."""
    with open("/proc/stat") as text:
        fields = [int(field) for field in text.readline().split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def busy_share(secs):
    """Share of all cpus that is in use while we do nothing, 0 to 1."""
    busy, total = cpu_times()
    time.sleep(secs)
    busy_after, total_after = cpu_times()
    return (busy_after - busy) / max(1, total_after - total)
