#!/usr/bin/env python3
"""Tries what docs/comparison.md tells of, with any program that puts several MCP servers behind one over stdio.

    python3 docs/compare/try.py -- target/debug/mcp-proxy run --config {toml}
    python3 docs/compare/try.py -- uvx fastmcp run {json}

The command is started anew for each trial; `{toml}` and `{json}` stand for a file with the servers of the trial, as a
`mcp-proxy.toml` or as `{"mcpServers": …}`. One line for each trial says what was seen; it judges nothing. Only Python's
own library is needed. Trials are chosen by name before the `--`.
"""
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

# === The servers

SERVER = r"""
import json, os, signal, subprocess, sys, time
name, flags = sys.argv[1], dict(pair.partition("=")[::2] for pair in sys.argv[2:])
def note(word):
    with open(flags["journal"], "a") as file:
        file.write(f"{name} {word} {os.getpid()}\n")
note("start")
if "stubborn" in flags:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    helper = subprocess.Popen(["sleep", "60"])
    with open(flags["journal"], "a") as file:
        file.write(f"{name} start {helper.pid}\n")
time.sleep(float(flags.get("late", 0)))
tool = lambda title: {"name": title, "description": title, "inputSchema": {"type": "object"}}
def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": name, "version": "1"}}
    if method == "tools/list":
        if "pages" in flags:
            page = int(params.get("cursor", 0))
            more = {"nextCursor": str(page + 1)} if page < 2 else {}
            return {"tools": [tool(f"tool_{page}_{n}") for n in range(5)], **more}
        bad = [{"name": "bad", "description": "has no schema"}] if "bad" in flags else []
        return {"tools": [tool("who"), tool("die"), tool("exact")] + bad}
    if method == "tools/call":
        note("call-" + params["name"])
        if params["name"] == "die" and not os.path.exists(flags["journal"] + ".died"):
            open(flags["journal"] + ".died", "w").close()
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)
        return {"content": [{"type": "text", "text": name}]}
    return {}
while line := sys.stdin.readline():
    if "noise" in flags:
        print("a line of a log that has lost its way", flush=True)
    message = json.loads(line)
    if "id" not in message:
        continue
    text = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(message["method"], message.get("params", {}))})
    if message["method"] == "tools/call" and message["params"]["name"] == "exact":
        text = text[:-1].replace('"content"', '"_meta": {"n": 9007199254740993, "x": 1e400, "future": null}, "content"') + "}"
    print(text, flush=True)
while "stubborn" in flags:
    time.sleep(1)
"""

# === The host


class Session:
    def __init__(self, command, servers):
        self.home = tempfile.TemporaryDirectory()
        self.journal = os.path.join(self.home.name, "journal")
        open(self.journal, "w").close()
        table = {name: {"command": sys.executable, "args": ["-c", SERVER, name, "journal=" + self.journal, *flags]}
                 for name, flags in servers.items()}
        paths = {"json": os.path.join(self.home.name, "servers.json"), "toml": os.path.join(self.home.name, "servers.toml")}
        with open(paths["json"], "w", encoding="utf-8") as file:
            json.dump({"mcpServers": table}, file)
        with open(paths["toml"], "w", encoding="utf-8") as file:
            for name, entry in table.items():
                file.write(f"[servers.{name}]\ncommand = {json.dumps(entry['command'])}\nargs = {json.dumps(entry['args'])}\n")
        words = [word.replace("{json}", paths["json"]).replace("{toml}", paths["toml"]) for word in command]
        env = {**os.environ, "HOME": self.home.name, "XDG_STATE_HOME": self.home.name, "XDG_CACHE_HOME": self.home.name}
        self.began = time.monotonic()
        self.process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.lines, self.next = queue.Queue(), 0
        threading.Thread(target=self.read, daemon=True).start()
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "try", "version": "1"}})
        self.initialized = self.age()
        self.say({"method": "notifications/initialized"})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.home.cleanup()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def age(self):
        return time.monotonic() - self.began

    def say(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params, limit=60):
        """The line that answers, and its value."""
        self.next += 1
        self.say({"id": self.next, "method": method, "params": params})
        end = time.monotonic() + limit
        while True:
            try:
                line = self.lines.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise RuntimeError(f"no answer to {method} within {limit} s") from None
            if not line:
                raise RuntimeError("it ended")
            message = json.loads(line)
            if message.get("id") == self.next and "method" not in message:
                return line, message

    def tools(self, wanted=None, limit=40):
        """The names on the first page, or on any page, until there are so many."""
        end = time.monotonic() + limit
        while True:
            names, cursor = [], None
            while True:
                result = self.ask("tools/list", {"cursor": cursor} if cursor else {})[1].get("result", {})
                names += [tool["name"] for tool in result.get("tools", [])]
                cursor = result.get("nextCursor")
                if not cursor:
                    break
            if wanted is None or len(names) >= wanted or time.monotonic() > end:
                return names
            time.sleep(0.2)

    def call(self, name):
        line, message = self.ask("tools/call", {"name": name, "arguments": {}})
        result = message.get("result", {})
        failed = "error" in message or result.get("isError")
        text = message["error"]["message"] if "error" in message else " ".join(
            block.get("text", "") for block in result.get("content", []))
        return line, failed, text

    def noted(self, word):
        with open(self.journal, encoding="utf-8") as file:
            return [line.split() for line in file if line.split()[1] == word]

    def pids(self):
        return [int(line[2]) for line in self.noted("start")]


def living(pids):
    def lives(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                return file.read().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False
    return [pid for pid in pids if lives(pid)]


def named(names, server, tool):
    return next(name for name in names if server in name and tool in name)


# === The trials


def killed(command):
    with Session(command, {"one": [], "two": []}) as session:
        names = session.tools(6)
        began = time.monotonic()
        _, failed, text = session.call(named(names, "one", "die"))
        took = time.monotonic() - began
        runs = len(session.noted("call-die"))
        time.sleep(2)
        try:
            _, again, _ = session.call(named(names, "one", "who"))
            after = "fails" if again else "works"
        except RuntimeError as error:
            after = str(error)
        return f"ran {runs} times; after {took:.1f} s {'an error' if failed else 'a result'}: {text[:160]!r}; the next call {after}"


def left(command):
    with Session(command, {"one": ["stubborn"], "two": []}) as session:
        session.tools(6)
        pids = session.pids()
        session.process.kill()
        session.process.wait()
        time.sleep(8)
        return f"{len(living(pids))} of {len(pids)} processes live 8 s after the kill"


def ended(command):
    with Session(command, {"one": ["stubborn"], "two": []}) as session:
        session.tools(6)
        pids = session.pids()
        session.process.stdin.close()
        time.sleep(8)
        return f"{len(living(pids))} of {len(pids)} processes live 8 s after the end of input"


def exact(command):
    with Session(command, {"one": [], "two": []}) as session:
        line, failed, _ = session.call(named(session.tools(6), "one", "exact"))
        words = ["9007199254740993", "1e400", '"future"']
        return ("an error; " if failed else "") + ", ".join(f"{word} {'as it was' if word in line else 'NOT as it was'}" for word in words)


def names(command):
    with Session(command, {"one": [], "two": []}) as session:
        found = session.tools(6)
        heard = [session.call(named(found, server, "who"))[2] for server in ("one", "two")]
        return f"{len(found)} names, {len(set(found))} of them different; the calls reached {heard}"


def pages(command):
    with Session(command, {"one": ["pages"], "two": []}) as session:
        return f"{len(session.tools(18, 10))} tools of 18"


def noise(command):
    with Session(command, {"one": ["noise"], "two": []}) as session:
        found = session.tools(6, 10)
        _, failed, text = session.call(named(found, "one", "who"))
        return f"{len(found)} tools of 6; a call {'fails: ' + text[:80] if failed else 'works'}"


def late(command):
    with Session(command, {"one": ["late=20"], "two": []}) as session:
        first = len(session.tools())
        listed = session.age()
        return f"initialize after {session.initialized:.1f} s; the first list after {listed:.1f} s with {first} tools of 6"


def bad(command):
    with Session(command, {"one": ["bad"], "two": []}) as session:
        found = session.tools(6, 5)
        return f"{len(found)} tools of 7, {'with' if any('bad' in name for name in found) else 'without'} the bad one"


def pace(command):
    with Session(command, {"one": [], "two": []}) as session:
        name, times = named(session.tools(6), "two", "who"), []
        for _ in range(300):
            began = time.monotonic()
            session.call(name)
            times.append(time.monotonic() - began)
        return f"p50 {sorted(times)[150] * 1000:.2f} ms, with a server and a host in Python"


TRIALS = [killed, left, ended, exact, names, pages, noise, late, bad, pace]


def main():
    chosen, command = sys.argv[1:sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1:]
    for trial in TRIALS:
        if chosen and trial.__name__ not in chosen:
            continue
        try:
            told = trial(command)
        except (RuntimeError, StopIteration, BrokenPipeError) as error:
            told = f"no result: {error!r}"
        print(f"{trial.__name__:8} {told}", flush=True)


if __name__ == "__main__":
    main()
