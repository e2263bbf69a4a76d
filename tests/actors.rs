//! The pump over pipes of one process, under a clock that stands still until nothing is left to do: real framing, real
//! partial reads and writes, real timers, and no second of waiting.
#![cfg(unix)]
#![expect(unreachable_pub, reason = "the parts of a test see each other")]
#![allow(clippy::unwrap_used, reason = "also in the helpers of tests a panic is the right end")]

#[path = "actors/rig.rs"]
mod rig;

use std::time::Duration;

use mcp_proxy::runtime::process::Exit;
use rig::{Proxy, secs};
use serde_json::{Value, json};
use tokio::time::Instant;

const TWO: &str = r#"
[defaults]
ping_interval = "0s"
[servers.a]
command = "sh"
args = ["a"]
[servers.b]
command = "sh"
args = ["b"]
"#;

/// A call of a tool of `server`.
fn call(id: u64, server: &str, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
           "params": {"name": format!("{server}__echo"), "arguments": {"text": text}}})
}

fn result(request: &Value, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": [{"type": "text", "text": text}]}})
}

fn text_of(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {answer}"))
}

#[tokio::test(start_paused = true)]
async fn two_children_one_list_and_each_call_reaches_its_own() {
    let mut proxy = Proxy::start(TWO).await;
    let (mut a, mut b) = (proxy.ready_child("a").await, proxy.ready_child("b").await);
    proxy.initialized().await;
    let list = proxy.request(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})).await;
    let names: Vec<_> = list["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["a__echo", "b__echo"]);
    proxy.say(&call(3, "a", "for a")).await;
    proxy.say(&call(4, "b", "for b")).await;
    let (to_a, to_b) = (a.hear().await, b.hear().await);
    assert_eq!(to_a["params"], json!({"name": "echo", "arguments": {"text": "for a"}}));
    assert_eq!(to_b["params"]["arguments"]["text"], "for b");
    b.say(&result(&to_b, "from b")).await;
    let first = proxy.answer().await;
    assert_eq!((&first["id"], text_of(&first)), (&json!(4), "from b"));
    a.say(&result(&to_a, "from a")).await;
    let second = proxy.answer().await;
    assert_eq!((&second["id"], text_of(&second)), (&json!(3), "from a"));
}

#[tokio::test(start_paused = true)]
async fn a_message_may_come_byte_by_byte_and_many_at_once() {
    let mut proxy = Proxy::start(TWO).await;
    let mut a = proxy.ready_child("a").await;
    proxy.initialized().await;
    for byte in format!("{}\n", call(2, "a", "slow")).into_bytes() {
        proxy.write(&[byte]).await;
    }
    let request = a.hear().await;
    for byte in format!("{}\r\n", result(&request, "é\u{2028}")).into_bytes() {
        a.write(&[byte]).await;
    }
    assert_eq!(text_of(&proxy.answer().await), "é\u{2028}");
    let many: Vec<_> = (10..60).map(|id| call(id, "a", &id.to_string()).to_string() + "\n").collect();
    proxy.write(many.concat().as_bytes()).await;
    let mut answers = String::new();
    for _ in 10..60 {
        let request = a.hear().await;
        let text = request["params"]["arguments"]["text"].as_str().unwrap().to_owned();
        answers.insert_str(0, &format!("{}\n", result(&request, &text)));
    }
    a.write(answers.as_bytes()).await;
    for id in (10..60).rev() {
        let answer = proxy.answer().await;
        assert_eq!((&answer["id"], text_of(&answer)), (&json!(id), id.to_string().as_str()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends_at_its_limit_and_a_late_reply_reaches_nobody() {
    let mut proxy = Proxy::start(&format!("{TWO}call_idle_timeout = \"10m\"\n")).await;
    let mut b = proxy.ready_child("b").await;
    proxy.initialized().await;
    let begun = Instant::now();
    proxy.say(&call(2, "b", "x")).await;
    let request = b.hear().await;
    let answer = proxy.answer().await;
    assert_eq!(begun.elapsed().as_secs(), 600);
    assert_eq!(answer["error"]["code"], -31010, "{answer}");
    assert_eq!(answer["error"]["data"]["reason"], "timeout", "{answer}");
    let notice = b.hear().await;
    assert_eq!(notice["method"], "notifications/cancelled");
    assert_eq!(notice["params"]["requestId"], request["id"]);
    b.say(&result(&request, "too late")).await;
    proxy.say(&call(3, "b", "y")).await;
    let request = b.hear().await;
    b.say(&result(&request, "in time")).await;
    let answer = proxy.answer().await;
    assert_eq!((&answer["id"], text_of(&answer)), (&json!(3), "in time"));
}

#[tokio::test(start_paused = true)]
async fn a_child_that_does_not_read_holds_up_itself_alone() {
    let mut proxy = Proxy::start(TWO).await;
    let (mut a, mut b) = (proxy.ready_child("a").await, proxy.ready_child("b").await);
    proxy.initialized().await;
    // Far more than the pipe to `a` takes.
    let much = "x".repeat(1 << 20);
    for id in 2..6 {
        proxy.say(&call(id, "a", &much)).await;
    }
    for id in 10..14 {
        proxy.say(&call(id, "b", "small")).await;
        let request = b.hear().await;
        b.say(&result(&request, "answered")).await;
        assert_eq!(proxy.answer().await["id"], id);
    }
    for id in 2..6 {
        let request = a.hear().await;
        assert_eq!(request["params"]["arguments"]["text"].as_str().unwrap().len(), much.len());
        a.say(&result(&request, "done")).await;
        assert_eq!(proxy.answer().await["id"], id);
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_does_not_read_loses_nothing() {
    let mut proxy = Proxy::start(TWO).await;
    let mut a = proxy.ready_child("a").await;
    proxy.initialized().await;
    // Together more than is kept for a host; a child is left unread meanwhile.
    let much = "x".repeat(1 << 20);
    for id in 2..12 {
        proxy.say(&call(id, "a", "")).await;
    }
    let mut child = tokio::task::JoinSet::new();
    child.spawn(async move {
        for _ in 2..12 {
            let request = a.hear().await;
            a.say(&result(&request, &much)).await;
        }
        a
    });
    tokio::time::sleep(secs(30)).await;
    assert!(child.try_join_next().is_none(), "all was taken from the child although nobody read it");
    for id in 2..12 {
        let answer = proxy.answer().await;
        assert_eq!((&answer["id"], text_of(&answer).len()), (&json!(id), 1 << 20));
    }
    child.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_exit_is_told_with_its_reason_and_a_new_life_follows() {
    let mut proxy = Proxy::start(TWO).await;
    let (mut a, mut b) = (proxy.ready_child("a").await, proxy.ready_child("b").await);
    proxy.initialized().await;
    proxy.say(&call(2, "a", "x")).await;
    proxy.say(&call(3, "a", "y")).await;
    proxy.say(&call(4, "b", "z")).await;
    let (answered, _lost) = (a.hear().await, a.hear().await);
    let to_b = b.hear().await;
    // Written before the exit, so it is delivered.
    a.say(&result(&answered, "just in time")).await;
    a.complain("out of memory\n").await;
    a.exit(Exit::Code(9));
    assert_eq!(text_of(&proxy.answer().await), "just in time");
    let lost = proxy.answer().await;
    assert_eq!((&lost["id"], &lost["error"]["code"]), (&json!(3), &json!(-31010)));
    let message = lost["error"]["message"].as_str().unwrap();
    assert!(message.contains("exit code 9") && message.contains("out of memory"), "{message}");
    b.say(&result(&to_b, "unharmed")).await;
    assert_eq!(proxy.answer().await["id"], 4);
    let mut a = proxy.ready_child("a").await;
    proxy.say(&call(5, "a", "again")).await;
    let request = a.hear().await;
    a.say(&result(&request, "second life")).await;
    assert_eq!(text_of(&proxy.answer().await), "second life");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_never_answers_costs_a_call_its_start_timeout() {
    let mut proxy = Proxy::start(&format!("{TWO}start_timeout = \"40s\"\nrestart = {{ policy = \"never\" }}\n")).await;
    let _a = proxy.ready_child("a").await;
    let mut silent = proxy.child("b").await;
    assert_eq!(silent.hear().await["method"], "initialize");
    proxy.initialized().await;
    let begun = Instant::now();
    proxy.say(&call(2, "b", "x")).await;
    let answer = proxy.answer().await;
    assert_eq!(answer["error"]["code"], -31011, "{answer}");
    assert!(begun.elapsed() <= secs(41), "{:?}", begun.elapsed());
    assert!(answer["error"]["message"].as_str().unwrap().contains('b'), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn changes_of_one_moment_are_told_once() {
    let mut proxy = Proxy::start(TWO).await;
    let mut children = [proxy.ready_child("a").await, proxy.ready_child("b").await];
    proxy.initialized().await;
    // Whatever the start gave reason to tell has been told by then.
    tokio::time::sleep(secs(10)).await;
    proxy.request(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})).await;
    proxy.told.clear();
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let mut fetches = Vec::new();
    for child in &mut children {
        child.say(&changed).await;
        fetches.push(child.hear().await);
        // A list that crossed these is not taken for the newest.
        for _ in 0..5 {
            child.say(&changed).await;
        }
    }
    for (child, fetch) in children.iter_mut().zip(&fetches) {
        child.say(&rig::listing(fetch, &["echo", "crossed"])).await;
    }
    for child in &mut children {
        let fetch = child.hear().await;
        child.say(&rig::listing(&fetch, &["echo", "newest"])).await;
    }
    tokio::time::sleep(secs(10)).await;
    let list = proxy.request(json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"})).await;
    let names: Vec<_> = list["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["a__echo", "a__newest", "b__echo", "b__newest"]);
    assert_eq!(proxy.told, [changed]);
}

#[tokio::test(start_paused = true)]
async fn at_the_hosts_end_open_calls_may_finish_and_every_child_gets_its_ladder() {
    let mut proxy = Proxy::start(&format!("{TWO}stop_grace = \"3s\"\n")).await;
    let (mut a, b) = (proxy.ready_child("a").await, proxy.ready_child("b").await);
    proxy.initialized().await;
    proxy.say(&call(2, "a", "last words")).await;
    let request = a.hear().await;
    proxy.close_input();
    tokio::time::sleep(Duration::from_millis(500)).await;
    a.say(&result(&request, "heard")).await;
    assert_eq!(text_of(&proxy.answer().await), "heard");
    let begun = Instant::now();
    let mut graces = [a.ladder().await, b.ladder().await];
    graces.sort();
    assert_eq!(graces, [secs(2), secs(3)]);
    proxy.ended().await;
    assert!(begun.elapsed() <= secs(4), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_gone_ends_all_at_once() {
    let mut proxy = Proxy::start(TWO).await;
    let (mut a, mut b) = (proxy.ready_child("a").await, proxy.ready_child("b").await);
    proxy.initialized().await;
    proxy.say(&call(2, "a", "x")).await;
    a.hear().await;
    let begun = Instant::now();
    proxy.close_output();
    proxy.ended().await;
    assert!(begun.elapsed() <= Duration::from_millis(100), "{:?}", begun.elapsed());
    // The guard ends what does not end by itself.
    a.input_ended().await;
    b.input_ended().await;
}
