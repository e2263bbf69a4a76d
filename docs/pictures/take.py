#!/usr/bin/env python3
"""Takes the pictures of `mcp-proxy top` in this folder, from a real run.

    pip install pyte
    cargo build --examples && cargo build
    python3 docs/pictures/take.py target/debug

A proxy with three servers is put under load by this script as its host: `notes` and `clock` of the examples, and one
that is killed in the middle of every fortieth call. `mcp-proxy top` runs in a terminal of 80 by 24, a terminal emulator
(pyte) reads what it writes, and the cells of its screen are written as SVG, colours included.
"""
import fcntl
import html
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

import pyte

HERE = os.path.dirname(os.path.abspath(__file__))
COLUMNS, LINES = 80, 24

# Answers everything, says a few words on stderr, and is gone in the middle of every fortieth call.
WEATHER = r"""
import json, os, sys
print("weather: listening", file=sys.stderr, flush=True)
calls = 0
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {}
    if message["method"] == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "weather", "version": "1"}}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "today", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        calls += 1
        if calls % 40 == 0:
            print("weather: the station does not answer, and nobody thought of that", file=sys.stderr, flush=True)
            os.abort()
        result = {"content": [{"type": "text", "text": "sunny"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


class Host:
    """Speaks to the proxy, and keeps it busy."""

    def __init__(self, proxy, config, env):
        self.process = subprocess.Popen([proxy, "run", "--config", config], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.waiting, self.next, self.lock, self.busy = {}, 0, threading.Lock(), True
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            arrived = self.waiting.pop(message.get("id"), None)
            if arrived:
                arrived.set()

    def say(self, **message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        with self.lock:
            self.next += 1
            number, arrived = self.next, threading.Event()
            self.waiting[number] = arrived
            self.say(id=number, method=method, params=params)
        arrived.wait(30)

    def open(self):
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                                "clientInfo": {"name": "pictures", "version": "1"}})
        self.say(method="notifications/initialized")
        self.ask("tools/list", {})

    def call(self, name, pause, **arguments):
        """One caller, again and again."""
        def again():
            count = 0
            while self.busy:
                count += 1
                self.ask("tools/call", {"name": name, "arguments": {key: value.format(count) for key, value in arguments.items()}})
                time.sleep(pause)
        threading.Thread(target=again, daemon=True).start()


def page(proxy, env, seconds, keys):
    """What `top` shows after so many seconds, as the screen of a terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(proxy, [proxy, "top"], env)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    os.set_blocking(terminal, False)
    end = time.monotonic() + seconds
    typed = end - seconds / 2
    while time.monotonic() < end:
        if keys and time.monotonic() > typed:
            os.write(terminal, keys)
            keys = b""
        try:
            stream.feed(os.read(terminal, 1 << 16))
        except BlockingIOError:
            time.sleep(0.02)
    os.kill(pid, signal.SIGTERM)
    os.close(terminal)
    os.waitpid(pid, 0)
    return screen


COLOURS = {"default": "#d6d6d6", "red": "#ff6b68", "green": "#7ec699", "brown": "#e5c07b", "yellow": "#e5c07b",
           "blue": "#61afef", "magenta": "#c678dd", "cyan": "#56b6c2", "white": "#ffffff", "black": "#1b1d22"}


def svg(screen, title):
    """The screen as SVG: a rectangle where cells have a ground, a text for each run of alike cells."""
    wide, high, left = 8.4, 17, 12
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * wide + 2 * left:.0f} {LINES * high + 2 * left}" '
           f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" role="img">',
           f"<title>{html.escape(title)}</title>", '<rect width="100%" height="100%" rx="6" fill="#1b1d22"/>']
    for y in range(LINES):
        x = 0
        while x < COLUMNS:
            cell = screen.buffer[y][x]
            look = (cell.fg, cell.bg, cell.bold, cell.reverse)
            start, text = x, ""
            while x < COLUMNS and (screen.buffer[y][x].fg, screen.buffer[y][x].bg, screen.buffer[y][x].bold,
                                   screen.buffer[y][x].reverse) == look:
                text += screen.buffer[y][x].data
                x += 1
            front, ground = COLOURS.get(cell.fg, "#" + cell.fg), COLOURS.get(cell.bg, "#" + cell.bg)
            if cell.bg == "default":
                ground = "#1b1d22"
            if cell.reverse:
                front, ground = ground, front
            place = left + start * wide
            if ground != "#1b1d22":
                out.append(f'<rect x="{place:.1f}" y="{left + y * high}" width="{len(text) * wide:.1f}" height="{high}" fill="{ground}"/>')
            if text.strip():
                weight = ' font-weight="bold"' if cell.bold else ""
                out.append(f'<text x="{place:.1f}" y="{left + y * high + 13}" textLength="{len(text.rstrip()) * wide:.1f}" '
                           f'fill="{front}"{weight} xml:space="preserve">{html.escape(text.rstrip())}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    built = os.path.abspath(sys.argv[1])
    proxy = os.path.join(built, "mcp-proxy")
    with tempfile.TemporaryDirectory() as home:
        os.makedirs(os.path.join(home, "run"), 0o700)
        env = {"HOME": home, "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": os.path.join(home, "run"),
               "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        config = os.path.join(home, "mcp-proxy.toml")
        with open(config, "w", encoding="utf-8") as file:
            for name in ("notes", "clock"):
                file.write(f"[servers.{name}]\ncommand = {json.dumps(os.path.join(built, 'examples', name))}\n")
            file.write(f"[servers.weather]\ncommand = {json.dumps(sys.executable)}\nargs = [\"-c\", {json.dumps(WEATHER)}]\n")
            file.write('restart = { min = "1s", max = "4s", attempts = 1000 }\n')
        host = Host(proxy, config, env)
        try:
            host.open()
            for _ in range(3):
                host.call("clock__convert", 0.004, time="08:00", **{"from": "Lima", "to": "Tokyo"})
            host.call("notes__search_notes", 0.02, query="milk")
            host.call("weather__today", 0.02, place="Vienna {}")
            time.sleep(6)
            down = b"\x1b[B\x1b[B"
            for name, extra, keys, title in [
                ("top", {}, down, "mcp-proxy top, under load, with a server that crashes"),
                ("top-plain", {"NO_COLOR": "1"}, down, "the same without colour"),
                ("top-log", {}, down + b"l", "the log of the chosen server"),
            ]:
                screen = page(proxy, {**env, **extra}, 6, keys)
                with open(os.path.join(HERE, name + ".svg"), "w", encoding="utf-8") as file:
                    file.write(svg(screen, title))
                print("\n".join(line.rstrip() for line in screen.display), "\n")
        finally:
            host.busy = False
            host.process.stdin.close()
            host.process.wait(20)


if __name__ == "__main__":
    main()
