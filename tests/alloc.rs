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
use mcp_proxy::engine::hub::{Clock, Effect, Entropy, Hub};
use mcp_proxy::engine::outcome::UnixMs;

/// Allocations of a read-only call, and of one that is written down, as they were when this was last looked at. A change
/// that needs more than a tenth above them fails here; one that needs fewer should lower them.
const READ_ONLY: u64 = 6;
const WRITTEN_DOWN: u64 = 8;
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

fn ready() -> (Hub, Conn, Instant) {
    let parsed = parse(Path::new("a.toml"), "[proxy]\nown_resources = false\n[servers.a]\ncommand = \"x\"\n", None);
    let now = Instant::now();
    let clock = Clock { instant: now, unix: UnixMs(0) };
    let mut hub = Hub::new(Arc::new(parsed.config), vec![None], clock, Entropy::new([7; 32]), 1);
    let conn = Conn { server: ServerId(0), generation: 1 };
    while hub.poll_effect().is_some() {}
    hub.handle_spawned(now, conn, Ok(2));
    hub.handle_host(now, line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#));
    hub.handle_host(now, line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#));
    to_child(&mut hub, conn);
    hub.handle_child(now, conn, line(r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"f","version":"1"}}}"#));
    assert!(to_child(&mut hub, conn).contains("tools/list"));
    hub.handle_child(now, conn, line(format!(r#"{{"jsonrpc":"2.0","id":2,"result":{TOOLS}}}"#)));
    while hub.poll_effect().is_some() {}
    let said = hub.host_outbox().bytes();
    hub.host_accepted(said);
    (hub, conn, now)
}

/// Calls a tool some times; the lines are made before, since they are the message itself.
fn allocations(tool: &str) -> u64 {
    let (mut hub, conn, now) = ready();
    let calls = |from: u64, count: u64| -> Vec<(Bytes, Bytes)> {
        (from..from + count)
            .map(|n| {
                let call = format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"tools/call","params":{{"name":"a__{tool}","arguments":{{"n":{n}}}}}}}"#);
                let reply = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[{{"type":"text","text":"done"}}]}}}}"#, n + 2);
                (line(call), line(reply))
            })
            .collect()
    };
    let mut run = |calls: Vec<(Bytes, Bytes)>| {
        for (call, reply) in calls {
            hub.handle_host(now, call);
            while let Some(effect) = hub.poll_effect() {
                drop::<Effect>(effect);
            }
            let bytes = hub.child_outbox(conn).map_or(0, mcp_proxy::wire::outbox::Outbox::bytes);
            assert!(bytes > 0, "the call went to the child");
            hub.child_accepted(conn, bytes);
            hub.handle_child(now, conn, reply);
            let said = hub.host_outbox().bytes();
            assert!(said > 0, "the answer went to the host");
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
    for (tool, known) in [("look", READ_ONLY), ("write", WRITTEN_DOWN)] {
        let total = allocations(tool);
        println!("{tool}: {total} allocations for {CALLS} calls");
        assert!(
            total * 10 <= known * CALLS * 11,
            "{tool}: {total} allocations for {CALLS} calls, {known} a call were known"
        );
        assert!(total > 0, "nothing was counted");
    }
}
