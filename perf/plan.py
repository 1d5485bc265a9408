"""What is measured: programs, the workloads they run in, and the targets for their figures."""

from dataclasses import dataclass

# A ratio this close to 1 is lost in the noise of a few runs: it needs PAIRS_MIN pairs and is
# judged by its interval.
CLOSE = (0.90, 1.10)
PAIRS_MIN = 20


@dataclass(frozen=True)
class Program:
    """A label in the tables, and the command behind it. `{cpu}` is the client's cpu."""

    label: str
    command: str


@dataclass(frozen=True)
class Scenario:
    """One workload that several programs take turns at."""

    name: str
    title: str
    server: str  # null-spin, null, null-silent or valkey
    arguments: str
    programs: tuple
    size: int = 64
    baseline: str = "bare ring"  # what `x` in the table is a ratio to
    every_cpu: bool = False  # the client may use the server's cpu too


@dataclass(frozen=True)
class Target:
    """`ours` over `reference` in `metric` is at most (or at least) `limit`.

    Without a reference it is the figure itself.
    """

    row: str
    scenario: str
    metric: str
    ours: str
    reference: str
    limit: float
    at_least: bool = False

    def is_close(self):
        return self.reference is not None and CLOSE[0] <= self.limit <= CLOSE[1]


BARE_RING = Program("bare ring", "bare-ring")
BARE_RING_SPIN = Program("bare ring, spinning", "bare-ring --spin")
BARE_EPOLL = Program("bare epoll", "bare-epoll")
BARE_STD = Program("bare std", "bare-std")
BARE_TOKIO = Program("bare tokio", "bare-tokio")
BUNDLE = Program(
    "bare ring, bundle 64Kx32", "bare-ring --receive bundle --buffer-kib 64 --buffers 32"
)
INCREMENTAL = Program(
    "bare ring, inc 256Kx8", "bare-ring --receive incremental --buffer-kib 256 --buffers 8"
)

OURS = Program("ours", "ours-local --cpu {cpu}")
OURS_ADAPTIVE = Program("ours, adaptive (default)", "ours-local --cpu {cpu} --park adaptive")
OURS_EPOLL = Program("ours, epoll rung", "ours-local --cpu {cpu} --rung epoll")
OURS_SPIN = Program("ours, spinning", "ours-local --cpu {cpu} --park spin")
OURS_HOSTED = Program("ours, hosted", "ours-hosted --workers 2")
OURS_PINNED = Program("ours, Client over a pinned core", "ours-pinned --cpu {cpu} --workers 2")

# One client: of three nodes with a connection each, and of one server with as many. Commands go to any of
# the three, so that each send carries about as many in both.
OURS_CLUSTER = Program("ours, cluster", "ours-local --cpu {cpu} --cluster --depth 192")
OURS_THREE = Program("ours, 3 connections", "ours-local --cpu {cpu} --lanes 3 --depth 192")
OURS_FLEET = Program(
    "ours, 300 nodes", "ours-local --cpu {cpu} --cluster --read-from quickest --depth 600"
)
REDIS_RS_CLUSTER = Program("redis-rs 1.8, cluster", "peer-redis --cluster --depth 192")

# The same reads with and without a second copy that could follow; none ever does. One group parks, the other
# waits as cores do by default.
def reads(park):
    command = f"ours-local --cpu {{cpu}} --read-from primary-preferred --park {park}"
    armed = tuple(
        Program(f"ours, {park}, armed {ms} ms", f"{command} --hedge-us {ms * 1000}")
        for ms in (1, 5)
    )
    return Program(f"ours, {park}, unarmed", command), armed


READS = {park: reads(park) for park in ("park", "adaptive")}
# The same timers without a client: what they cost in the kernel.
BARE_TIMERS = tuple(
    Program(f"bare ring, timer {ms} ms", f"bare-ring --timer-us {ms * 1000}") for ms in (1, 5)
)
ARMED = (BARE_RING,) + BARE_TIMERS + tuple(p for un, armed in READS.values() for p in (un, *armed))

# `p50`, `p99` and `max` of these are how late 200 us end.
TIMERS = tuple(
    Program(f"{limit}, {park}", f"ours-timer --cpu {{cpu}} --limit {limit} --park {park}")
    for limit in ("sleep", "timeout")
    for park in ("park", "spin")
)

REDIS_RS = Program("redis-rs 1.8", "peer-redis")
FRED = Program("fred 10.1", "peer-fred")
RUSTIS = Program("rustis 0.27", "peer-rustis")
RINGLINE = Program("ringline-redis 0.7", "peer-ringline")
PEERS = (RINGLINE, RUSTIS, REDIS_RS, FRED)

REDIS_RS_HOSTED = Program("redis-rs 1.8, 2 workers", "peer-redis --workers 2")
REDIS_RS_NO_TIMEOUT = Program(
    "redis-rs 1.8, 2 workers, no timeout", "peer-redis --workers 2 --no-timeout"
)
REDIS_RS_ONE = Program("redis-rs 1.8, current_thread", "peer-redis --workers 0")
RUSTIS_HOSTED = Program("rustis 0.27, 2 workers", "peer-rustis --workers 2")
FRED_HOSTED = Program("fred 10.1, 2 workers", "peer-fred --workers 2")

SMALL = (BARE_RING, BARE_EPOLL, BARE_TOKIO, OURS, OURS_EPOLL) + PEERS
LARGE = (BUNDLE, INCREMENTAL, BARE_EPOLL, OURS) + PEERS
REAL = (BARE_RING, BARE_EPOLL, OURS) + PEERS
HOSTED = (
    OURS_HOSTED,
    OURS_PINNED,
    REDIS_RS_HOSTED,
    REDIS_RS_NO_TIMEOUT,
    REDIS_RS_ONE,
    RUSTIS_HOSTED,
    FRED_HOSTED,
)


def hosted(tasks, every_cpu):
    """A service in tokio's multi_thread runtime: `tasks` tasks share one client."""
    where = "all cpus" if every_cpu else "one cpu"
    return Scenario(
        f"hosted-{tasks}" + ("-all" if every_cpu else ""),
        f"Hosted in tokio, {tasks} task{'s' if tasks > 1 else ''} on one connection, {where}",
        "null",
        f"--depth {tasks} --latency",
        HOSTED,
        baseline="redis-rs 1.8, 2 workers",
        every_cpu=every_cpu,
    )


SCENARIOS = (
    Scenario(
        "w1",
        "W1: GET 64 B, 1 in flight",
        "null-spin",
        "--depth 1 --latency",
        SMALL + (BARE_STD, OURS_ADAPTIVE),
    ),
    Scenario(
        "w2",
        "W2: GET 64 B, 1 connection x 64 in flight",
        "null-spin",
        "--depth 64",
        SMALL + (BARE_STD,),
    ),
    Scenario(
        "w3", "W3: GET 64 B, 1 connection x 1024 in flight", "null-spin", "--depth 1024", SMALL
    ),
    Scenario(
        "w4",
        "W4: GET 64 B, 16 connections x 16 in flight",
        "null-spin",
        "--connections 16 --depth 16",
        SMALL,
    ),
    Scenario(
        "large-64k",
        "GET 64 KiB, owned and contiguous, 16 in flight",
        "null-spin",
        "--depth 16",
        LARGE,
        size=64 << 10,
        baseline="bare ring, bundle 64Kx32",
    ),
    Scenario(
        "large-1m",
        "GET 1 MiB, owned and contiguous, 16 in flight",
        "null-spin",
        "--depth 16",
        LARGE,
        size=1 << 20,
        baseline="bare ring, inc 256Kx8",
    ),
    Scenario(
        "set", "SET 64 B, 1 connection x 64 in flight", "null-spin", "--depth 64 --verb set", REAL
    ),
    Scenario(
        "open",
        "Open loop: GET 64 B, Poisson arrivals at 300,000/s",
        "null-spin",
        "--rate 300000",
        (BARE_RING, BARE_EPOLL, OURS_SPIN, REDIS_RS, RUSTIS),
    ),
    Scenario(
        "valkey-w1",
        "W1 against Valkey",
        "valkey",
        "--depth 1 --latency",
        REAL + (BARE_RING_SPIN, OURS_SPIN, OURS_ADAPTIVE),
    ),
    Scenario("valkey-w2", "W2 against Valkey", "valkey", "--depth 64", REAL),
    Scenario("valkey-w3", "W3 against Valkey", "valkey", "--depth 1024", REAL),
    Scenario(
        "armed-w1",
        "W1 with hedging armed: GET 64 B, 1 in flight",
        "null-spin",
        "--depth 1 --latency",
        ARMED,
    ),
    Scenario(
        "armed-w2",
        "W2 with hedging armed: GET 64 B, 1 connection x 64 in flight",
        "null-spin",
        "--depth 64",
        ARMED,
    ),
    Scenario(
        "cluster",
        "Cluster of 3: GET 64 B, 64 in flight on each connection",
        "null-cluster",
        "",
        (OURS_THREE, OURS_CLUSTER, REDIS_RS_CLUSTER),
        baseline=OURS_THREE.label,
    ),
    Scenario(
        "fleet",
        "Cluster of 100 primaries with 2 replicas each, reads from all of them",
        "null-fleet",
        "",
        (OURS_FLEET,),
        baseline=OURS_FLEET.label,
    ),
    Scenario(
        "timer",
        "Timers: how late 200 us end",
        "null-silent",
        "--latency",
        TIMERS,
        baseline=TIMERS[0].label,
    ),
) + tuple(hosted(tasks, every_cpu) for every_cpu in (False, True) for tasks in (1, 16, 64))


def over(row, scenario, metric, ours, reference, limit, at_least=False):
    """A target between two programs."""
    return Target(row, scenario, metric, ours.label, reference.label, limit, at_least)


def hosted_targets(every_cpu):
    """The rows of one affinity."""
    end = "-all" if every_cpu else ""
    where = ", all cpus" if every_cpu else ""
    ours, peer = OURS_HOSTED, REDIS_RS_HOSTED
    return (
        over(
            f"hosted, 1 task{where}: p50 / redis-rs", "hosted-1" + end, "p50_us", ours, peer, 1.00
        ),
        over(
            f"hosted, 1 task{where}: CPU / redis-rs",
            "hosted-1" + end,
            "cpu_us_op",
            ours,
            peer,
            0.95,
        ),
        over(
            f"hosted, 16 tasks{where}: CPU / redis-rs",
            "hosted-16" + end,
            "cpu_us_op",
            ours,
            peer,
            0.85,
        ),
        over(
            f"hosted, 16 tasks{where}: commands / redis-rs",
            "hosted-16" + end,
            "ops_s",
            ours,
            peer,
            0.95,
            True,
        ),
        over(
            f"hosted, 64 tasks{where}: CPU / redis-rs",
            "hosted-64" + end,
            "cpu_us_op",
            ours,
            peer,
            0.40,
        ),
        over(
            f"hosted, 64 tasks{where}: CPU / redis-rs in current_thread",
            "hosted-64" + end,
            "cpu_us_op",
            ours,
            REDIS_RS_ONE,
            0.75,
        ),
    )


TARGETS = (
    (
        over("W1 CPU / bare ring", "w1", "cpu_us_op", OURS, BARE_RING, 1.05),
        over("W1 p50 / bare ring", "w1", "p50_us", OURS, BARE_RING, 1.03),
        over(
            "W1 p50 spinning, Valkey / redis-rs", "valkey-w1", "p50_us", OURS_SPIN, REDIS_RS, 0.40
        ),
        over("W2 CPU / bare ring", "w2", "cpu_us_op", OURS, BARE_RING, 1.50),
        over("W2 CPU / ringline-redis", "w2", "cpu_us_op", OURS, RINGLINE, 0.65),
        over("W2 CPU / redis-rs", "w2", "cpu_us_op", OURS, REDIS_RS, 0.30),
        over("W3 CPU / bare ring", "w3", "cpu_us_op", OURS, BARE_RING, 2.80),
        over("W3 CPU / ringline-redis", "w3", "cpu_us_op", OURS, RINGLINE, 0.40),
        over("W3 CPU / redis-rs", "w3", "cpu_us_op", OURS, REDIS_RS, 0.12),
        over("W4 CPU / bare ring", "w4", "cpu_us_op", OURS, BARE_RING, 1.06),
        over("W4 CPU / ringline-redis", "w4", "cpu_us_op", OURS, RINGLINE, 0.70),
        over("W4 CPU / redis-rs", "w4", "cpu_us_op", OURS, REDIS_RS, 0.40),
        over("64 KiB GET CPU / bundle 64Kx32", "large-64k", "cpu_us_op", OURS, BUNDLE, 1.25),
        over("1 MiB GET CPU / inc 256Kx8", "large-1m", "cpu_us_op", OURS, INCREMENTAL, 1.25),
        over("SET CPU / bare ring", "set", "cpu_us_op", OURS, BARE_RING, 1.50),
        over("SET CPU / ringline-redis", "set", "cpu_us_op", OURS, RINGLINE, 0.65),
    )
    + hosted_targets(False)
    + hosted_targets(True)
    + (
        Target(
            "64 KiB GET: payload copied in user space",
            "large-64k",
            "copied_share",
            OURS.label,
            None,
            0.30,
        ),
        Target(
            "1 MiB GET: payload copied in user space",
            "large-1m",
            "copied_share",
            OURS.label,
            None,
            0.25,
        ),
    )
    + tuple(
        over(
            f"{name.upper()} CPU, epoll rung / ring rung", name, "cpu_us_op", OURS_EPOLL, OURS, 1.10
        )
        for name in ("w1", "w2", "w3", "w4")
    )
    + tuple(
        over(
            f"{name.upper()} CPU, {armed.label} / unarmed",
            f"armed-{name}",
            "cpu_us_op",
            armed,
            unarmed,
            1.10,
        )
        for name in ("w1", "w2")
        for unarmed, both in READS.values()
        for armed in both
    )
    + (
        over("cluster CPU / one server", "cluster", "cpu_us_op", OURS_CLUSTER, OURS_THREE, 1.10),
        Target("cluster of 300 nodes: MiB", "fleet", "rss_mib", OURS_FLEET.label, None, 64),
        over("cluster CPU / redis-rs", "cluster", "cpu_us_op", OURS_CLUSTER, REDIS_RS_CLUSTER, 0.50),
        over("open loop 300,000/s p50 / bare ring", "open", "p50_us", OURS_SPIN, BARE_RING, 1.10),
        over("open loop 300,000/s p99 / bare ring", "open", "p99_us", OURS_SPIN, BARE_RING, 1.10),
    )
    + tuple(
        Target(f"200 us late at p99, us: {timer.label}", "timer", "p99_us", timer.label, None, 100)
        for timer in TIMERS
    )
)

# Rows that no wall clock can answer.
ELSEWHERE = (
    (
        "warm GET: allocations, locked instructions, instructions",
        "tests/budget asserts the first, perf/locked shows the second, "
        "cargo bench --bench instructions bounds the third",
    ),
    (
        "hosted Client over pinned cores",
        "for reference only: see the hosted tables; it pays a hop between threads",
    ),
)


def pick_scenarios(only):
    """The scenarios whose name, or its first part, is in `only`; all of them if it is empty."""
    if not only:
        return list(SCENARIOS)
    known = {name for s in SCENARIOS for name in (s.name, s.name.split("-")[0])}
    unknown = sorted(set(only) - known)
    if unknown:
        raise SystemExit(f"no scenario {', '.join(unknown)}; there are: {', '.join(sorted(known))}")
    return [s for s in SCENARIOS if s.name in only or s.name.split("-")[0] in only]
