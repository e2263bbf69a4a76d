//! What a call on the plain path costs in allocations, counted: this grows only if the code does more.
//!
//! The machine is driven as the pump drives it, without pipes: a host's line in, the child's line out, its reply in, the
//! answer out.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use mcp_proxy::config::parse;
use mcp_proxy::engine::child::{Conn, ServerId};
use mcp_proxy::engine::era::Era;
use mcp_proxy::engine::hub::{Clock, Effect, Entropy, Hub};
use mcp_proxy::engine::outcome::UnixMs;

/// Allocations of a read-only call, and of one that is written down, as they were when this was last looked at. A change
/// that needs more than a tenth above them fails here; one that needs fewer should lower them.
const READ_ONLY: u64 = 5;
const WRITTEN_DOWN: u64 = 6;
/// The same of a read-only call where a side is modern: host, server, allocations. Two legacy sides pay nothing of it.
const CELLS: [(Era, Era, u64); 4] = [
    (Era::Legacy, Era::Legacy, READ_ONLY),
    (Era::Legacy, Era::Modern, 31),
    (Era::Modern, Era::Legacy, 17),
    (Era::Modern, Era::Modern, 25),
];
const CALLS: u64 = 1000;

const TOOLS: &str = r#"{"tools":[
    {"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},
    {"name":"write","inputSchema":{"type":"object"}}]}"#;

fn line(text: impl Into<String>) -> Bytes {
    Bytes::from(text.into().replace('\n', ""))
}

/// Takes all that waits for the child, and tells it.
fn to_child(hub: &mut Hub, conn: Conn) -> String {
    let outbox = hub.child_outbox(conn).expect("the child is there");
    let bytes: Vec<u8> = outbox.front().flatten().copied().collect();
    hub.child_accepted(conn, bytes.len());
    String::from_utf8(bytes).expect("messages are UTF-8")
}

/// What a modern request carries.
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn ready(host: Era, child: Era) -> (Hub, Conn, Instant) {
    let parsed = parse(Path::new("a.toml"), "[proxy]\nown_resources = false\n[servers.a]\ncommand = \"x\"\n", None);
    let now = Instant::now();
    let clock = Clock { instant: now, unix: UnixMs(0) };
    let mut hub = Hub::new(Arc::new(parsed.config), vec![None], clock, Entropy::new([7; 32]), 1);
    let conn = Conn { server: ServerId(0), generation: 1 };
    while hub.poll_effect().is_some() {}
    hub.handle_spawned(now, conn, Ok(2));
    if host == Era::Legacy {
        hub.handle_host(now, line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#));
        hub.handle_host(now, line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#));
    } else {
        hub.handle_host(
            now,
            line(format!(r#"{{"jsonrpc":"2.0","id":0,"method":"prompts/list","params":{{{META}}}}}"#)),
        );
    }
    let mut next = 1;
    let mut says = |hub: &mut Hub, member: &str| {
        hub.handle_child(now, conn, line(format!(r#"{{"jsonrpc":"2.0","id":{next},{member}}}"#)));
        next += 1;
        to_child(hub, conn)
    };
    let first = to_child(&mut hub, conn);
    // Who is greeted in the other era says so.
    if first.contains("server/discover") != (child == Era::Modern) {
        says(&mut hub, r#""error":{"code":-32601,"message":"no"}"#);
    }
    let opened = if child == Era::Modern {
        r#""result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}"#
    } else {
        r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"f","version":"1"}}"#
    };
    assert!(says(&mut hub, opened).contains("tools/list"));
    says(&mut hub, &format!(r#""result":{TOOLS}"#));
    while hub.poll_effect().is_some() {}
    let said = hub.host_bytes();
    hub.host_accepted(said);
    (hub, conn, now)
}

/// Calls a tool some times, so many at once; the lines are made before, since they are the message itself.
fn allocations(host: Era, child: Era, tool: &str, at_once: usize) -> u64 {
    let (mut hub, conn, now) = ready(host, child);
    let meta = if host == Era::Modern { format!(",{META}") } else { String::new() };
    // Our number of the next request.
    let probe =
        line(format!(r#"{{"jsonrpc":"2.0","id":"probe","method":"tools/call","params":{{"name":"a__look"{meta}}}}}"#));
    hub.handle_host(now, probe);
    let sent = to_child(&mut hub, conn);
    let (_, sent) = sent.split_once("\"id\":").expect("the call has an id");
    let first: u64 = sent.split(',').next().and_then(|id| id.parse().ok()).expect("ours is a number");
    let line_of = |n: u64| {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{n},"method":"tools/call","params":{{"name":"a__{tool}","arguments":{{"n":{n}}}{meta}}}}}"#
        );
        let reply = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[{{"type":"text","text":"done"}}]}}}}"#,
            n + first
        );
        (line(call), line(reply))
    };
    let calls = |from: u64, count: u64| -> Vec<(Vec<Bytes>, Vec<Bytes>)> {
        let numbers: Vec<u64> = (from..from + count).collect();
        numbers.chunks(at_once).map(|some| some.iter().copied().map(line_of).unzip()).collect()
    };
    let mut run = |calls: Vec<(Vec<Bytes>, Vec<Bytes>)>| {
        for (calls, replies) in calls {
            for call in calls {
                hub.handle_host(now, call);
            }
            while let Some(effect) = hub.poll_effect() {
                drop::<Effect>(effect);
            }
            let bytes = hub.child_outbox(conn).map_or(0, mcp_proxy::wire::outbox::Outbox::bytes);
            assert!(bytes > 0, "the calls went to the child");
            hub.child_accepted(conn, bytes);
            for reply in replies {
                hub.handle_child(now, conn, reply);
            }
            let said = hub.host_bytes();
            assert!(said > 0, "the answers went to the host");
            hub.host_accepted(said);
            while let Some(effect) = hub.poll_effect() {
                drop::<Effect>(effect);
            }
        }
    };
    run(calls(1, 100));
    let counted = calls(101, CALLS);
    allocation_counter::measure(|| run(counted)).count_total
}

#[test]
fn a_call_allocates_no_more_than_it_did() {
    let legacy = |tool, known| (Era::Legacy, Era::Legacy, tool, known);
    let cells = CELLS.map(|(host, child, known)| (host, child, "look", known));
    for (host, child, tool, known) in
        [legacy("look", READ_ONLY), legacy("write", WRITTEN_DOWN)].into_iter().chain(cells)
    {
        let total = allocations(host, child, tool, 1);
        println!("{host:?} host, {child:?} server, {tool}: {total} allocations for {CALLS} calls");
        assert!(
            total * 10 <= known * CALLS * 11,
            "{host:?} host, {child:?} server, {tool}: {total} allocations for {CALLS} calls, {known} a call were known"
        );
        assert!(total > 0, "nothing was counted");
    }
}

/// Many at once share what their messages are written into.
#[test]
fn calls_that_are_under_way_together_allocate_no_more() {
    for (tool, known) in [("look", READ_ONLY), ("write", WRITTEN_DOWN)] {
        let total = allocations(Era::Legacy, Era::Legacy, tool, 64);
        println!("64 at once, {tool}: {total} allocations for {CALLS} calls");
        assert!(
            total * 10 <= known * CALLS * 11,
            "{tool}: {total} allocations for {CALLS} calls, {known} a call were known"
        );
    }
}
