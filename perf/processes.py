"""Servers and programs: started pinned, given a time limit, and ended whatever happens."""

import ctypes
import json
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time

KEYS = 100_000
SLACK_SECS = 20  # beyond the window before a program counts as hung
PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """Something could not be started or did not finish."""


def pinned(cpus):
    """For a child: its cpus, and that it must not outlive us."""
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def prepare():
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.sched_setaffinity(0, cpus)

    return prepare


def find_valkey(root):
    """VALKEY_SERVER, or the one that the test suites fetched; None if there is none."""
    named = os.environ.get("VALKEY_SERVER")
    if named:
        return named
    for name in ("valkey91", "valkey90"):
        program = os.path.join(root, "tests", ".servers", name, "valkey-server")
        if os.access(program, os.X_OK):
            return program
    return None


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server on its cpu, up and filled when the constructor returns. Use it in a `with`."""

    def __init__(self, kind, size, cpu, binaries, valkey):
        self.port = free_port()
        self.folder = tempfile.TemporaryDirectory(prefix="perf-")
        environment = dict(os.environ)
        if kind == "valkey":
            command = self.valkey_command(valkey)
            libraries = os.path.join(os.path.dirname(os.path.realpath(valkey)), "lib")
            environment["LD_LIBRARY_PATH"] = ":".join(
                filter(None, (libraries, environment.get("LD_LIBRARY_PATH")))
            )
        else:
            command = [
                os.path.join(binaries, "null-server"),
                "--addr",
                f"127.0.0.1:{self.port}",
                "--size",
                str(size),
            ]
            command += {
                "null-spin": ["--spin"],
                "null-silent": ["--silent"],
                "null-cluster": ["--spin", "--primaries", "3"],
                "null-fleet": ["--primaries", "100", "--replicas-each", "2"],
            }.get(kind, [])
        try:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=pinned({cpu}),
            )
        except OSError as error:
            self.folder.cleanup()
            raise Failed(f"{command[0]}: {error}") from error
        try:
            self.wait_until_up()
            if kind == "valkey":
                fill(self.port, size)
        except BaseException:
            self.stop()
            raise

    def valkey_command(self, valkey):
        return [
            valkey,
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--daemonize",
            "no",
            "--dir",
            self.folder.name,
        ]

    def wait_until_up(self):
        until = time.monotonic() + 10
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise Failed(f"the server ended with status {self.process.returncode}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                return
            except OSError:
                time.sleep(0.02)
        raise Failed("the server did not come up within 10 s")

    def stop(self):
        end(self.process)
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def end(process):
    """Ends one process of ours: asked first, then killed."""
    process.terminate()
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def fill(port, size):
    """Stores every key that the programs ask for."""
    batch = 1000
    value = b"x" * size
    with socket.create_connection(("127.0.0.1", port), 10) as server:
        for first in range(0, KEYS, batch):
            server.sendall(
                b"".join(
                    b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$%d\r\n%s\r\n" % (key, size, value)
                    for key in range(first, first + batch)
                )
            )
            answers = b""
            while len(answers) < batch * len(b"+OK\r\n"):
                part = server.recv(1 << 16)
                if not part:
                    raise Failed("the server closed the connection while it was filled")
                answers += part
            if answers != b"+OK\r\n" * batch:
                raise Failed(f"the server refused a SET: {answers[:80]!r}")


def run_program(command, server, cpus, binaries, secs, warm_secs, size):
    """Runs one program to its end; its result line as a dict, or `{"failed": why}`."""
    words = shlex.split(command)
    words[0] = os.path.join(binaries, words[0])
    words += [
        "--addr",
        f"127.0.0.1:{server.port}",
        "--size",
        str(size),
        "--secs",
        str(secs),
        "--warm-secs",
        str(warm_secs),
    ]
    if not os.access(words[0], os.X_OK):
        return {"failed": f"{os.path.basename(words[0])} is not built"}
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=pinned(cpus),
    )
    try:
        out, errors = process.communicate(timeout=secs + warm_secs + SLACK_SECS)
    except subprocess.TimeoutExpired:
        return {"failed": "hung: no result within its time"}
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    try:
        result = json.loads(out.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        return {"failed": f"status {process.returncode}: {errors.strip()[-300:]}"}
    if process.returncode != 0:
        return {
            "failed": f"status {process.returncode}, {result['ops']} replies, {result['wrong']} wrong"
        }
    counters = result["counters"]
    if counters.get("bytes_received"):
        result["copied_share"] = counters["bytes_copied"] / counters["bytes_received"]
    return result
