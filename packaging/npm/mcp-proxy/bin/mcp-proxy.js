#!/usr/bin/env node
// Starts the native program of this platform's package in our place, as far as Node can: its streams are ours, its
// signals are ours, and its exit is ours. `mcp-proxy install` writes the native program's own path into a host's file,
// so that no Node stands between host and proxy afterwards.
"use strict";

const { spawn } = require("node:child_process");
const path = require("node:path");

const platform = `${process.platform}-${process.arch}`;
const name = process.platform === "win32" ? "mcp-proxy.exe" : "mcp-proxy";

function program() {
  if (process.env.MCP_PROXY_BINARY) return process.env.MCP_PROXY_BINARY;
  try {
    return path.join(path.dirname(require.resolve(`mcp-proxy-hub-${platform}/package.json`)), name);
  } catch {
    console.error(
      `mcp-proxy: there is no package for ${platform}. ` +
        "Install without --omit=optional, or build it with `cargo install mcp-proxy` and set MCP_PROXY_BINARY.",
    );
    process.exit(1);
  }
}

const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`mcp-proxy: the program can't be started: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  } else {
    process.exit(code ?? 1);
  }
});
