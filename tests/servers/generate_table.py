#!/usr/bin/env python3
"""Writes src/command/table/generated.rs from a running Valkey server's own command metadata.

    valkey-server --port 7001 --save '' --appendonly no &
    tests/servers/generate_table.py 127.0.0.1:7001 > src/command/table/generated.rs

Only COMMAND and COMMAND DOCS are read. The server should be the newest version that the crate
speaks to, without modules, so that the table holds the server's commands and nothing else.
"""

import socket
import sys

GROUPS = {
    "bitmap": "Bitmap",
    "cluster": "Cluster",
    "connection": "Connection",
    "generic": "Generic",
    "geo": "Geo",
    "hash": "Hash",
    "hyperloglog": "HyperLogLog",
    "list": "List",
    "pubsub": "PubSub",
    "scripting": "Scripting",
    "server": "Server",
    "set": "Set",
    "sorted-set": "SortedSet",
    "stream": "Stream",
    "string": "String",
    "transactions": "Transactions",
}

# The server's flags and tips that the client acts on; the others are left out of the table.
FLAGS = [
    ("write", "WRITE"),
    ("readonly", "READONLY"),
    ("denyoom", "DENYOOM"),
    ("admin", "SERVER_ADMIN"),
    ("pubsub", "PUBSUB"),
    ("noscript", "NOSCRIPT"),
    ("blocking", "BLOCKING"),
    ("loading", "LOADING"),
    ("stale", "STALE"),
    ("no_auth", "NO_AUTH"),
    ("fast", "FAST"),
    ("no_multi", "NO_MULTI"),
    ("movablekeys", "MOVABLE_KEYS"),
]
TIPS = [("nondeterministic_output", "RANDOM"), ("nondeterministic_output_order", "UNORDERED")]


class Server:
    """One connection that speaks RESP2."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.lines = self.socket.makefile("rb")

    def ask(self, *words):
        """The reply to one command."""
        out = b"*%d\r\n" % len(words)
        for word in words:
            out += b"$%d\r\n%s\r\n" % (len(word), word.encode())
        self.socket.sendall(out)
        return self.read()

    def read(self):
        """One reply: text, a number, None or a list of these."""
        line = self.lines.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.lines.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return None if rest == b"-1" else [self.read() for _ in range(int(rest))]
        raise SystemExit(f"the server answered {line!r}")


def pairs(flat):
    """A flat [key, value, ..] list as a dict."""
    return dict(zip(flat[::2], flat[1::2]))


def rows_of(server):
    """(name words, COMMAND entry, COMMAND DOCS entry) for each command and subcommand."""
    docs = pairs(server.ask("COMMAND", "DOCS"))
    rows = []
    for entry in server.ask("COMMAND"):
        doc = pairs(docs[entry[0]])
        rows.append((entry[0].upper().split("|"), entry, doc))
        inner = pairs(doc.get("subcommands", []))
        for sub in entry[9]:
            rows.append((sub[0].upper().split("|"), sub, pairs(inner[sub[0]])))
    return sorted(rows, key=lambda row: " ".join(row[0]).encode())


def camel(word):
    """request_policy values as variant names: all_shards -> AllShards."""
    return "".join(part.capitalize() for part in word.split("_"))


def policy(tips, prefix):
    """The policy tip with this prefix, as a variant name."""
    for tip in tips:
        if tip.startswith(prefix + ":"):
            return camel(tip.split(":")[1])
    return "Default"


def flags(entry):
    """The flag constants of an entry, joined by |."""
    found = [ours for theirs, ours in FLAGS if theirs in entry[2]]
    found += [ours for theirs, ours in TIPS if theirs in entry[7]]
    if entry[9]:
        found.append("CONTAINER")
    return " | ".join(found) or "0"


def key_spec(raw):
    """One key specification as an expression."""
    spec = pairs(raw)
    begin, find = pairs(spec["begin_search"]), pairs(spec["find_keys"])
    where, how = pairs(begin["spec"]), pairs(find["spec"])
    if begin["type"] == "unknown":
        return "UNKNOWN"
    if begin["type"] == "index":
        start = f'at({where["index"]})'
    else:
        start = f'after("{where["keyword"]}", {where["startfrom"]})'
    if find["type"] == "range":
        keys = f'.range({how["lastkey"]}, {how["keystep"]}, {how["limit"]})'
    else:
        keys = f'.counted({how["keynumidx"]}, {how["firstkey"]}, {how["keystep"]})'
    channel = ".channel()" if "not_key" in spec["flags"] else ""
    return start + keys + channel


def row(words, entry, doc):
    """The table line of one command."""
    keys = ", ".join(key_spec(spec) for spec in entry[8])
    policies = f'{policy(entry[7], "request_policy")}, {policy(entry[7], "response_policy")}'
    return (
        f'    row("{" ".join(words)}", {entry[1]}, "{doc["since"]}", Group::{GROUPS[doc["group"]]}, '
        f"{flags(entry)}, Ask::{policies.replace(', ', ', Answer::')}, &[{keys}]),"
    )


def head(index, words):
    """The constant start of a command's bytes, with room for the argument count's digit."""
    text = "".join(f"${len(word)}\\r\\n{word}\\r\\n" for word in words)
    name = "_".join(words).replace("-", "_")
    return f'    pub(crate) const {name}: Head = Head::new({index}, {len(words)}, b"*0\\r\\n{text}");'


def main():
    """Reads the server named on the command line and prints the file."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: generate_table.py HOST:PORT")
    server = Server(sys.argv[1])
    about = dict(l.split(":", 1) for l in server.ask("INFO", "server").splitlines() if ":" in l)
    version = f'valkey {about["valkey_version"]}'
    rows = rows_of(server)
    print("//! Valkey's own command metadata, sorted by name.")
    print("//!")
    print(f"//! Generated by `tests/servers/generate_table.py` from {version}; do not edit.")
    print("use super::row::{Answer, Ask, Group, Row, UNKNOWN, after, at, bits::*, row};")
    print()
    print("/// One row for each command and subcommand, in byte order of the names.")
    print("#[rustfmt::skip]")
    print(f"pub(super) static ROWS: [Row; {len(rows)}] = [")
    for each in rows:
        print(row(*each))
    print("];")
    print()
    print("/// How each command's bytes begin.")
    print("#[rustfmt::skip]")
    print('#[allow(dead_code, reason = "not every command has a typed method")]')
    print("pub(crate) mod head {")
    print("    use crate::command::args::Head;")
    print()
    for index, (words, _, _) in enumerate(rows):
        print(head(index, words))
    print("}")


main()
