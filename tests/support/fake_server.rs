//! A scripted MCP server over stdio for the tests: it speaks every revision and misbehaves on demand.
//!
//! Flags are `key=value` or a bare `key`, from the arguments and, split at white space, from `$FAKE_FLAGS`. A flag
//! written `@2:key=value` counts only at the second start, `@2+:…` from the second on; starts are the lines of `pids`.
//!
//! | start | |
//! |---|---|
//! | `pids=FILE` | appends the own pid, a line a start |
//! | `record=FILE` | appends one JSON object a line: `{"t": ms, "pid", "gen", "k", "d"}`; `k` is `start`, `in` (`d` is the raw line), `asks` (a request of its own), `eof`, `signal` (then the exit code is 128 + its number), `exit` |
//! | `crash=CODE` | exits before it reads anything; `burn=MS` keeps a processor busy before |
//! | `stderr=BYTES`, `stderr_line=TEXT` | writes to stderr before it reads: bytes without a line end, a line |
//! | `banner=KIND` | writes noise to stdout before it reads, see the tool `noise` |
//! | `slowinit=MS`, `hanginit`, `crashinit=CODE` | answers `initialize` late, never, exits in its place |
//! | `initfail_once=FILE` | exits with 1 in place of an answer, unless FILE exists; creates it |
//! | `initreply=JSON` | the whole line that answers `initialize`, with `ID` for the id |
//! | `strict_first` | exits with 1 if the first message is anything but `initialize` or `ping` |
//! | `slowlist=MS`, `hanglist` | the four list methods late, or never |
//! | `slow:METHOD=MS`, `hang:METHOD`, `error:METHOD=CODE` | any method late (the reader waits), never, with an error; `error1:METHOD=CODE` only the first time |
//! | `wrapper`, `wrapper=exit` | starts the real server as a grandchild that inherits the pipes; stays, or exits at once |
//!
//! | what it offers | |
//! |---|---|
//! | `label=TEXT` | its name in `serverInfo`, resources, prompts; default `fake` |
//! | `ver=V`, `instructions=TEXT`, `ilen=BYTES` | the answer to `initialize`; `ilen` more bytes of instructions |
//! | `initextra=JSON` | members put into the result of `initialize`, as `"a":1,"b":2` |
//! | `caps=a,b` | declares only these of `tools prompts resources subscribe logging completions tasks` (default: all, `tasks` from 2025-11-25 on; `caps=none`: none); the methods of the rest are -32601 |
//! | `nolistchanged` | declares no `listChanged` |
//! | `nolists` | declares all, yet answers the lists with -32601 |
//! | `only` | none of the own tools, prompts and resources |
//! | `tools=N prompts=N resources=N templates=N` | N more of each; `desc=BYTES` length of their descriptions |
//! | `odd`, `odd=a,b` | odd tools: `noschema nulldesc emptyname dup unicode long notype badschema nullschema fields numbers chars deep` |
//! | `catalog=FILE` | more entries, byte for byte: `{"tools": […], "prompts": […], "resources": […], "templates": […]}`; read anew by the tool `reload` |
//! | `scheme=S` | of the resources; default `mem` |
//! | `page=N`, `cursor=repeat\|empty\|endless` | page size; a cursor that repeats, an empty string at the end, pages without end |
//! | `changed_on_list` | announces `list_changed` at every `tools/list` |
//!
//! | the wire | |
//! |---|---|
//! | `one_byte` | one byte a write; `crlf`, `bom` (first line), `bom_all` |
//! | `string_ids` | answers with the id as a string |
//! | `ids=string` | its own requests have string ids (`"0"`, `"1"` …), not numbers from 0 |
//! | `single` | one thread: a call blocks everything else |
//! | `ledger=FILE` | one line per executed call: `{"tool", "arguments", "pid", "gen"}` |
//! | `rootsoninit` | asks for roots when initialized and writes them to the record as `roots` |
//! | `modern`, `modern=only` | serves 2026-07-28 as well, or alone; see `fake/modern.rs` |
//!
//! | the end | |
//! |---|---|
//! | `ignore_eof`, `ignore_term` | lives on (SIGINT and SIGHUP too) |
//! | `linger=MS`, `exit_on_eof_after=MS` | exits this long after the end of its input; `exitcode=N` |
//!
//! The tools stand in `fake/own.rs`, each with its arguments; tasks of 2025-11-25 in `fake/tasks.rs`.
#![expect(
    clippy::disallowed_methods,
    reason = "a program of its own, which has to misbehave: it looks at clocks and exits where it stands"
)]

#[path = "fake/announce.rs"]
mod announce;
#[path = "fake/catalog.rs"]
mod catalog;
#[path = "fake/flags.rs"]
mod flags;
#[path = "fake/modern.rs"]
mod modern;
#[path = "fake/out.rs"]
mod out;
#[path = "fake/own.rs"]
mod own;
#[path = "fake/process.rs"]
mod process;
#[path = "fake/server.rs"]
mod server;
#[path = "fake/tasks.rs"]
mod tasks;
#[path = "fake/tools.rs"]
mod tools;

use std::io::BufRead as _;
use std::time::Duration;

use flags::Flags;
use server::Server;

fn main() {
    let flags = Flags::from_process();
    if flags.has("grandchild") {
        process::grandchild(&flags);
    }
    if flags.has("wrapper") {
        process::wrapper(&flags);
    }
    if let Some(ms) = flags.number("burn") {
        process::burn(ms);
    }
    if let Some(code) = flags.exit_code("crash") {
        std::process::exit(code);
    }
    if let Some(bytes) = flags.number("stderr") {
        process::flood_stderr(bytes, 0);
    }
    if let Some(line) = flags.text("stderr_line") {
        process::stderr_line(line);
    }
    let server = Server::new(flags);
    server.record("start", &process::about());
    if server.flags.has("ignore_term") || server.flags.has("record") {
        process::watch_signals(server.clone());
    }
    if let Some(kind) = server.flags.text("banner") {
        server.out.raw(&out::noise(kind));
    }
    read(&server);
    server.record("eof", "");
    end(&server);
}

/// Takes lines until the input ends.
fn read(server: &Server) {
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => server.take(&line),
        }
    }
}

fn end(server: &Server) {
    if server.flags.has("ignore_eof") {
        process::forever();
    }
    if let Some(ms) = server.flags.number("linger").or(server.flags.number("exit_on_eof_after")) {
        std::thread::sleep(Duration::from_millis(ms));
    }
    server.record("exit", "");
    std::process::exit(server.flags.exit_code("exitcode").unwrap_or(0));
}
