//! Tasks: the extension of 2026-07-28 and its bridge to core tasks of 2025-11-25 (`PROTOCOL.md` 5.13).

use std::time::Duration;

use serde_json::{Value, json};

use crate::machine::{Machine, TASKS, accepted};
use crate::rig::{MODERN, Place, Rig, able};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// What a host can do that knows tasks.
fn able_with_tasks() -> Value {
    let mut able = able();
    able["extensions"] = json!({ TASKS: {} });
    able
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_default()
}

/// The server's last request of that method.
#[track_caller]
fn sent(m: &mut Machine, method: &str) -> Value {
    let sent = m.sent();
    sent.iter().find(|line| line["method"] == method).unwrap_or_else(|| panic!("no {method}: {sent:#?}")).clone()
}

fn extension(id: &str, status: &str) -> Value {
    json!({ "taskId": id, "status": status, "createdAt": "c", "lastUpdatedAt": "u", "ttlMs": 60000, "pollIntervalMs": 2000 })
}

fn core(id: &str, status: &str) -> Value {
    json!({ "taskId": id, "status": status, "createdAt": "c", "lastUpdatedAt": "u", "ttl": 60000, "pollInterval": 2000 })
}

fn with(mut object: Value, members: Value) -> Value {
    object.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    object
}

fn form() -> Value {
    json!({ "message": "m", "requestedSchema": { "type": "object", "properties": {} } })
}

fn done() -> Value {
    json!({ "content": [{ "type": "text", "text": "done" }] })
}

fn get(m: &mut Machine, id: u64, task: &Value) {
    m.host(json!({ "id": id, "method": "tasks/get", "params": { "taskId": task } }));
}

// A modern host, a modern server.

/// A task of a modern pair; its id at the host.
fn relayed(m: &mut Machine) -> Value {
    m.capabilities = able_with_tasks();
    let wire = m.call(1, "t").unwrap();
    m.child(json!({ "id": wire, "result": with(extension("t9", "working"), json!({ "resultType": "task" })) }));
    let made = m.answer();
    assert_eq!(made["result"]["resultType"], "task", "{made}");
    assert_eq!(made["result"]["ttlMs"], 60000);
    made["result"]["taskId"].clone()
}

#[test]
fn r126_r128_tasks_of_a_modern_pair_pass_with_ids_that_lead_back() {
    let mut m = Machine::modern_before_modern();
    let task = relayed(&mut m);
    assert!(task.as_str().unwrap().starts_with("s.") && task.as_str().unwrap().len() > 20, "{task}");
    get(&mut m, 2, &task);
    let asked = sent(&mut m, "tasks/get");
    assert_eq!(asked["params"]["taskId"], "t9");
    assert_eq!(asked["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"][TASKS], json!({}));
    let asks = json!({ "who": { "method": "elicitation/create", "params": form() } });
    // Some servers say `task` of a state, too.
    let state = with(extension("t9", "input_required"), json!({ "resultType": "task", "inputRequests": asks }));
    m.child(json!({ "id": asked["id"], "result": state }));
    let told = m.answer()["result"].clone();
    assert_eq!((&told["resultType"], &told["taskId"]), (&json!("complete"), &task));
    assert_eq!(told["inputRequests"]["who"]["params"]["message"], "[s] m");
    m.host(json!({ "id": 3, "method": "tasks/update", "params": { "taskId": task, "inputResponses": { "who": accepted() } } }));
    let update = sent(&mut m, "tasks/update");
    assert_eq!((&update["params"]["taskId"], &update["params"]["inputResponses"]["who"]), (&json!("t9"), &accepted()));
    m.child(json!({ "id": update["id"], "result": { "resultType": "complete" } }));
    assert_eq!(m.answer()["result"]["resultType"], "complete");
    get(&mut m, 4, &task);
    let asked = sent(&mut m, "tasks/get");
    let result = json!({ "content": [{ "type": "resource_link", "uri": "mem:///a", "name": "a" }], "isError": true });
    m.child(json!({ "id": asked["id"], "result": with(extension("t9", "completed"), json!({ "result": result })) }));
    let told = m.answer()["result"].clone();
    assert_eq!((&told["resultType"], &told["status"]), (&json!("complete"), &json!("completed")), "r130");
    assert_eq!(told["result"]["content"][0]["uri"], "s+mem:///a");
    m.host(json!({ "id": 5, "method": "tasks/cancel", "params": { "taskId": task } }));
    assert_eq!(sent(&mut m, "tasks/cancel")["params"]["taskId"], "t9");
    for unknown in ["t9", "", "s.x"] {
        get(&mut m, 6, &json!(unknown));
        assert_eq!(code(&m.answer()), -32602, "{unknown}");
    }
    assert_eq!(m.lost, 0);
}

#[test]
fn r126_an_id_leads_back_after_a_restart_of_ours_to_that_server_and_host_alone() {
    let mut m = Machine::modern_before_modern();
    let task = relayed(&mut m);
    // Another process with another chance, before the same server.
    let mut next = Machine::modern_before_modern_as(2);
    next.capabilities = able_with_tasks();
    get(&mut next, 1, &task);
    let asked = sent(&mut next, "tasks/get");
    assert_eq!(asked["params"]["taskId"], "t9");
    let unknown = json!({ "code": -32602, "message": "who?" });
    next.child(json!({ "id": asked["id"], "error": unknown }));
    assert_eq!(next.answer()["error"], unknown, "what its server says is the answer");
    next.host(
        json!({ "id": "s1", "method": "subscriptions/listen", "params": { "notifications": { "taskIds": [task] } } }),
    );
    assert_eq!(sent(&mut next, "subscriptions/listen")["params"]["notifications"]["taskIds"], json!(["t9"]));
    // Nobody can guess or change one, it has its time, and a host of the other era does not know it.
    let text = task.as_str().unwrap();
    let touched = format!("{}{}", &text[..text.len() - 3], if text.ends_with("AAA") { "BBB" } else { "AAA" });
    let mut other = Machine::legacy_before_modern();
    let refuses = |m: &mut Machine, id: &Value| {
        get(m, 7, id);
        let told = m.told();
        assert!(told.iter().any(|line| line["id"] == 7 && code(line) == -32602), "{id}: {told:#?}");
        assert!(m.sent().is_empty());
    };
    refuses(&mut next, &json!(touched));
    refuses(&mut next, &json!(text.replacen("s.", "x.", 1)));
    refuses(&mut other, &task);
    let mut late = Machine::modern_before_modern_as(3);
    late.capabilities = able_with_tasks();
    late.pass(Duration::from_secs(8 * 24 * 3600));
    get(&mut late, 1, &task);
    assert_eq!(code(&late.answer()), -32602);
    // A server of that key that is another program knows nothing of it.
    let mut replaced = Machine::modern_before_modern_with(4, "another");
    replaced.capabilities = able_with_tasks();
    get(&mut replaced, 1, &task);
    assert_eq!(code(&replaced.answer()), -32602);
    // Neither if it becomes another one while we run.
    next.replaced("another");
    next.told();
    next.sent();
    refuses(&mut next, &task);
}

#[test]
fn r127_what_is_of_the_extension_must_be_declared_in_the_request() {
    let mut m = Machine::modern_before_modern();
    let task = relayed(&mut m);
    m.capabilities = able();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        m.host(json!({ "id": 2, "method": method, "params": { "taskId": task } }));
        let answer = m.answer();
        assert_eq!(code(&answer), -32021, "{method}");
        assert_eq!(answer["error"]["data"]["requiredCapabilities"]["extensions"][TASKS], json!({}));
    }
    m.host(json!({ "id": 3, "method": "subscriptions/listen", "params": { "notifications": { "taskIds": [task] } } }));
    assert_eq!(code(&m.answer()), -32021);
    // A server that makes a task though nobody knows of tasks answers with nothing.
    let wire = m.call(4, "t").unwrap();
    m.child(json!({ "id": wire, "result": with(extension("t10", "working"), json!({ "resultType": "task" })) }));
    assert_eq!(m.answer()["error"]["data"]["reason"], "invalid_response");
}

#[test]
fn a_stream_tells_of_the_tasks_that_it_names() {
    let mut m = Machine::modern_before_modern();
    let task = relayed(&mut m);
    m.host(json!({ "id": "s1", "method": "subscriptions/listen", "params": { "notifications": { "taskIds": [task, "s.nobody"] } } }));
    let listen = sent(&mut m, "subscriptions/listen");
    assert_eq!(listen["params"]["notifications"]["taskIds"], json!(["t9"]));
    assert_eq!(listen["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"][TASKS], json!({}));
    assert!(m.told().is_empty());
    let of = |wire: &Value| json!({ "io.modelcontextprotocol/subscriptionId": wire });
    m.child(json!({ "method": "notifications/subscriptions/acknowledged", "params": { "_meta": of(&listen["id"]), "notifications": { "taskIds": ["t9"] } } }));
    let honoured = m.answer();
    assert_eq!(honoured["params"]["notifications"], json!({ "taskIds": [task] }));
    let news = with(extension("t9", "completed"), json!({ "_meta": of(&listen["id"]), "result": done() }));
    m.child(json!({ "method": "notifications/tasks", "params": news }));
    let told = m.answer();
    assert_eq!((&told["method"], &told["params"]["taskId"]), (&json!("notifications/tasks"), &task));
    assert_eq!(told["params"]["_meta"], of(&json!("s1")));
    m.host(json!({ "method": "notifications/cancelled", "params": { "requestId": "s1" } }));
    m.child(json!({ "method": "notifications/tasks", "params": news }));
    assert!(m.told().is_empty());
}

// A modern host, a legacy server.

/// A task of a legacy server for a modern host that knows tasks; its id at the host.
fn from_core(m: &mut Machine) -> Value {
    m.capabilities = able_with_tasks();
    m.host(json!({ "id": 1, "method": "tools/call", "params": { "name": "s__long", "arguments": {}, "task": { "ttl": 1 } } }));
    let call = sent(m, "tools/call");
    assert_eq!(call["params"]["task"], json!({}), "what the host says is of no meaning in its era");
    m.child(json!({ "id": call["id"], "result": { "task": core("t9", "working") } }));
    let made = m.answer()["result"].clone();
    assert_eq!((&made["resultType"], &made["status"]), (&json!("task"), &json!("working")), "{made}");
    assert_eq!((&made["ttlMs"], &made["pollIntervalMs"], made.get("ttl")), (&json!(60000), &json!(2000), None));
    made["taskId"].clone()
}

#[test]
fn r128_r130_a_core_task_is_told_as_one_of_the_extension() {
    let mut m = Machine::modern_before_legacy();
    let task = from_core(&mut m);
    get(&mut m, 2, &task);
    let asked = sent(&mut m, "tasks/get");
    assert_eq!(asked["params"], json!({ "taskId": "t9", "_meta": {} }));
    m.child(json!({ "id": asked["id"], "result": core("t9", "working") }));
    let told = m.answer()["result"].clone();
    assert_eq!((&told["resultType"], &told["status"], &told["taskId"]), (&json!("complete"), &json!("working"), &task));
    // A result that is an error is `failed` there, and `completed` here; it is read once.
    get(&mut m, 3, &task);
    let asked = sent(&mut m, "tasks/get");
    m.child(json!({ "id": asked["id"], "result": core("t9", "failed") }));
    assert!(m.told().is_empty());
    let read = sent(&mut m, "tasks/result");
    let result = json!({ "content": [{ "type": "resource_link", "uri": "mem:///a", "name": "a" }], "isError": true,
        "_meta": { RELATED: { "taskId": "t9" } } });
    m.child(json!({ "id": read["id"], "result": result }));
    for id in [3, 4] {
        let told = m.answer();
        assert_eq!((&told["id"], &told["result"]["status"]), (&json!(id), &json!("completed")), "{told}");
        let inlined = &told["result"]["result"];
        assert_eq!((&inlined["isError"], &inlined["content"][0]["uri"]), (&json!(true), &json!("s+mem:///a")));
        assert_eq!(inlined["_meta"].get(RELATED), None);
        get(&mut m, 4, &task);
        assert!(m.sent().is_empty(), "the end is known");
    }
    m.told();
    m.host(json!({ "id": 5, "method": "tasks/cancel", "params": { "taskId": task } }));
    assert_eq!(m.answer()["result"]["resultType"], "complete");
    assert_eq!(m.lost, 0);
}

#[test]
fn a_core_task_that_fails_has_its_error_inlined_and_one_that_is_cancelled_none() {
    let mut m = Machine::modern_before_legacy();
    let task = from_core(&mut m);
    get(&mut m, 2, &task);
    let asked = sent(&mut m, "tasks/get");
    m.child(json!({ "id": asked["id"], "result": core("t9", "failed") }));
    let read = sent(&mut m, "tasks/result");
    let error = json!({ "code": -32000, "message": "no luck" });
    m.child(json!({ "id": read["id"], "error": error }));
    let told = m.answer()["result"].clone();
    assert_eq!((&told["status"], &told["error"]), (&json!("failed"), &error));

    let mut m = Machine::modern_before_legacy();
    let task = from_core(&mut m);
    m.host(json!({ "id": 2, "method": "tasks/cancel", "params": { "taskId": task } }));
    let cancel = sent(&mut m, "tasks/cancel");
    m.child(json!({ "id": cancel["id"], "result": core("t9", "cancelled") }));
    let told = m.answer()["result"].clone();
    assert_eq!((&told["resultType"], told.get("status")), (&json!("complete"), None), "an empty word");
    get(&mut m, 3, &task);
    assert_eq!(m.answer()["result"]["status"], "cancelled");
}

#[test]
fn questions_of_a_core_task_are_in_its_state_and_are_answered_by_an_update() {
    let mut m = Machine::modern_before_legacy();
    let task = from_core(&mut m);
    get(&mut m, 2, &task);
    let asked = sent(&mut m, "tasks/get");
    m.child(json!({ "id": asked["id"], "result": core("t9", "input_required") }));
    assert_eq!(m.answer()["result"]["status"], "working", "what it asks is not known yet");
    let read = sent(&mut m, "tasks/result");
    let question = with(form(), json!({ "_meta": { RELATED: { "taskId": "t9" } } }));
    m.child(json!({ "id": 77, "method": "elicitation/create", "params": question }));
    m.child(json!({ "id": 78, "method": "sampling/createMessage", "params": { "messages": [], "maxTokens": 1, "tools": [], "_meta": { RELATED: { "taskId": "t9" } } } }));
    assert_eq!(code(&m.sent()[0]), -32602, "the host's sampling takes no tools");
    // Another call's end takes nothing of it back.
    let other = m.call(20, "t").unwrap();
    m.host(json!({ "method": "notifications/cancelled", "params": { "requestId": 20 } }));
    assert_eq!(m.sent()[0]["params"]["requestId"], other);
    get(&mut m, 3, &task);
    let asked = sent(&mut m, "tasks/get");
    m.child(json!({ "id": asked["id"], "result": core("t9", "input_required") }));
    let told = m.answer()["result"].clone();
    assert_eq!(told["status"], "input_required", "{told}");
    let entry = &told["inputRequests"]["q1"];
    assert_eq!((&entry["method"], &entry["params"]["message"]), (&json!("elicitation/create"), &json!("[s] m")));
    assert_eq!(entry["params"].get("_meta"), None);
    assert!(m.sent().is_empty(), "the result is waited for once");
    let update = |id: u64, answers: Value| json!({ "id": id, "method": "tasks/update", "params": { "taskId": task, "inputResponses": answers } });
    m.host(update(4, json!({ "q1": "yes" })));
    assert_eq!(code(&m.answer()), -32602);
    m.host(update(5, json!({ "q1": accepted(), "stray": {} })));
    assert_eq!(m.answer()["result"]["resultType"], "complete");
    assert_eq!(m.sent(), [json!({ "jsonrpc": "2.0", "id": 77, "result": accepted() })]);
    m.host(update(6, json!({ "q1": accepted() })));
    assert_eq!(m.answer()["result"]["resultType"], "complete");
    assert!(m.sent().is_empty(), "an answer is given once");
    m.child(json!({ "id": read["id"], "result": done() }));
    get(&mut m, 7, &task);
    assert_eq!(m.answer()["result"]["result"]["content"][0]["text"], "done");
}

#[test]
fn a_stream_tells_of_a_core_task_whether_its_server_does_or_not() {
    let mut m = Machine::modern_before_legacy();
    let task = from_core(&mut m);
    m.host(
        json!({ "id": "s1", "method": "subscriptions/listen", "params": { "notifications": { "taskIds": [task] } } }),
    );
    assert_eq!(m.answer()["params"]["notifications"], json!({ "taskIds": [task] }));
    let asked = sent(&mut m, "tasks/get");
    m.child(json!({ "id": asked["id"], "result": with(core("t9", "working"), json!({ "statusMessage": "half" })) }));
    let told = m.answer();
    assert_eq!((&told["method"], &told["params"]["statusMessage"]), (&json!("notifications/tasks"), &json!("half")));
    m.pass(Duration::from_secs(2));
    let asked = sent(&mut m, "tasks/get");
    assert_eq!(asked["params"]["taskId"], "t9", "as often as it said");
    m.child(json!({ "method": "notifications/tasks/status", "params": core("t9", "completed") }));
    assert!(m.told().is_empty(), "its result belongs to the news");
    let read = sent(&mut m, "tasks/result");
    m.child(json!({ "id": read["id"], "result": done() }));
    let told = m.answer()["params"].clone();
    m.child(json!({ "id": asked["id"], "result": core("t9", "completed") }));
    assert_eq!((&told["status"], &told["result"]["content"][0]["text"]), (&json!("completed"), &json!("done")));
    m.pass(Duration::from_secs(60));
    assert!(m.sent().is_empty(), "an ended task is not asked about");
    // Who comes late is told once.
    m.host(
        json!({ "id": "s2", "method": "subscriptions/listen", "params": { "notifications": { "taskIds": [task] } } }),
    );
    assert_eq!(m.told()[1]["params"]["status"], "completed");
}

#[test]
fn a_tool_that_is_only_a_task_is_waited_for_where_the_host_knows_no_tasks() {
    let mut m = Machine::modern_before_legacy();
    let wire = m.call(1, "long").unwrap();
    m.child(json!({ "id": wire, "result": { "task": core("t9", "working") } }));
    assert!(m.told().is_empty());
    let read = sent(&mut m, "tasks/result");
    // Its silence has no limit, and it asks as any call does.
    m.pass(Duration::from_secs(20 * 60));
    let question = with(form(), json!({ "_meta": { RELATED: { "taskId": "t9" } } }));
    m.child(json!({ "id": 77, "method": "elicitation/create", "params": question }));
    m.pass(Duration::from_millis(25));
    let asked = m.answer();
    assert_eq!(asked["result"]["resultType"], "input_required");
    m.retry(2, "long", &asked["result"]["requestState"], json!({ "q1": accepted() }));
    assert_eq!(m.sent()[0]["id"], 77);
    m.child(json!({ "id": read["id"], "result": with(done(), json!({ "_meta": { RELATED: { "taskId": "t9" } } })) }));
    let answer = m.answer();
    assert_eq!((&answer["id"], &answer["result"]["resultType"]), (&json!(2), &json!("complete")));
    assert_eq!(answer["result"]["_meta"].get(RELATED), None);
    assert_eq!(m.lost, 0);
    // It is cancelled as a task is.
    let wire = m.call(3, "long").unwrap();
    m.child(json!({ "id": wire, "result": { "task": core("t10", "working") } }));
    m.sent();
    m.host(json!({ "method": "notifications/cancelled", "params": { "requestId": 3 } }));
    let sent = m.sent();
    assert_eq!(
        (sent.len(), &sent[0]["method"], &sent[0]["params"]["taskId"]),
        (1, &json!("tasks/cancel"), &json!("t10"))
    );
    assert_eq!(m.lost, 1);
    // And lost as a call is.
    let wire = m.call(4, "long").unwrap();
    m.child(json!({ "id": wire, "result": { "task": core("t11", "working") } }));
    m.child_exits();
    assert_eq!(m.answer()["error"]["data"]["reason"], "child_exited");
    assert_eq!(m.lost, 2);
}

// A legacy host, a modern server.

/// A task of a modern server for a legacy host; its id at the host.
fn from_extension(m: &mut Machine) -> Value {
    m.host(json!({ "id": 1, "method": "tools/call", "params": { "name": "s__t", "arguments": {}, "task": { "ttl": 60000 } } }));
    let call = sent(m, "tools/call");
    assert_eq!(call["params"].get("task"), None);
    assert_eq!(call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"][TASKS], json!({}));
    m.child(json!({ "id": call["id"], "result": with(extension("t9", "working"), json!({ "resultType": "task" })) }));
    let made = m.answer()["result"].clone();
    assert_eq!(made.get("resultType"), None);
    let task = made["task"].clone();
    assert_eq!((&task["ttl"], &task["pollInterval"], task.get("ttlMs")), (&json!(60000), &json!(2000), None));
    task["taskId"].clone()
}

/// What the host was told beside its task's status, which is another one now.
#[track_caller]
fn beside_status(m: &mut Machine, task: &Value, status: &str) -> Vec<Value> {
    let is_news = |line: &Value| line["method"] == "notifications/tasks/status";
    let (news, rest): (Vec<Value>, Vec<Value>) = m.told().into_iter().partition(is_news);
    assert_eq!(news.len(), 1, "{news:#?} {rest:#?}");
    assert_eq!(news[0]["params"], with(core("t9", status), json!({ "taskId": task })));
    rest
}

#[test]
fn r129_r130_a_task_of_the_extension_is_told_as_one_of_core() {
    let mut m = Machine::legacy_before_modern();
    let task = from_extension(&mut m);
    get(&mut m, 2, &task);
    let asked = sent(&mut m, "tasks/get");
    assert_eq!(asked["params"]["taskId"], "t9");
    m.child(
        json!({ "id": asked["id"], "result": with(extension("t9", "working"), json!({ "resultType": "complete" })) }),
    );
    assert_eq!(m.answer()["result"], with(core("t9", "working"), json!({ "taskId": task })));
    // The result waits, is asked for as often as the server says, and comes once.
    m.host(json!({ "id": 3, "method": "tasks/result", "params": { "taskId": task } }));
    let asked = sent(&mut m, "tasks/get");
    m.child(json!({ "id": asked["id"], "result": extension("t9", "working") }));
    assert!(m.sent().is_empty());
    m.pass(Duration::from_secs(2));
    let asked = sent(&mut m, "tasks/get");
    let result = with(done(), json!({ "resultType": "complete", "isError": true }));
    m.child(json!({ "id": asked["id"], "result": with(extension("t9", "completed"), json!({ "result": result })) }));
    let answer = beside_status(&mut m, &task, "failed").remove(0);
    assert_eq!(answer["id"], 3);
    assert_eq!(answer["result"], with(done(), json!({ "isError": true, "_meta": { RELATED: { "taskId": task } } })));
    get(&mut m, 4, &task);
    assert_eq!(m.answer()["result"]["status"], "failed");
    m.host(json!({ "id": 5, "method": "tasks/list" }));
    assert_eq!(m.answer()["result"]["tasks"][0]["taskId"], task);
    m.host(json!({ "id": 6, "method": "tasks/cancel", "params": { "taskId": task } }));
    assert_eq!(code(&m.answer()), -32602, "it is at its end");
    m.pass(Duration::from_secs(60));
    assert!(m.sent().is_empty() && m.lost == 0);
}

#[test]
fn a_legacy_host_is_told_of_its_task_as_a_modern_server_tells_us() {
    let mut m = Machine::legacy_before_modern();
    let task = from_extension(&mut m);
    let listen = sent(&mut m, "subscriptions/listen");
    assert_eq!(listen["params"]["notifications"], json!({ "taskIds": ["t9"] }));
    assert_eq!(listen["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"][TASKS], json!({}));
    let on = json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": listen["id"] } });
    let acknowledged = with(on.clone(), json!({ "notifications": { "taskIds": ["t9"] } }));
    m.child(json!({ "method": "notifications/subscriptions/acknowledged", "params": acknowledged }));
    assert!(m.told().is_empty());
    let news = |m: &mut Machine, state: Value| {
        m.child(json!({ "method": "notifications/tasks", "params": with(state, on.clone()) }));
    };
    news(&mut m, with(extension("t9", "working"), json!({ "statusMessage": "half" })));
    let told = m.answer();
    assert_eq!(
        (&told["method"], &told["params"]["statusMessage"]),
        (&json!("notifications/tasks/status"), &json!("half"))
    );
    assert_eq!((&told["params"]["taskId"], told["params"].get("_meta")), (&task, None));
    news(&mut m, with(extension("t9", "working"), json!({ "statusMessage": "half" })));
    assert!(m.told().is_empty(), "that is no news");
    news(&mut m, extension("t10", "completed"));
    assert!(m.told().is_empty(), "nobody knows of that task");
    let result = with(done(), json!({ "resultType": "complete" }));
    news(&mut m, with(extension("t9", "completed"), json!({ "result": result })));
    assert_eq!(beside_status(&mut m, &task, "completed"), Vec::<Value>::new());
    // Its result is known, so nothing is asked for, and its stream has no task any more.
    m.host(json!({ "id": 2, "method": "tasks/result", "params": { "taskId": task } }));
    assert_eq!(m.answer()["result"]["content"], done()["content"]);
    assert!(m.sent().is_empty());
    // Who waits for the result is told at once, not only when the state is asked for again.
    m.host(json!({ "id": 3, "method": "tools/call", "params": { "name": "s__t", "arguments": {}, "task": {} } }));
    let call = sent(&mut m, "tools/call");
    m.child(json!({ "id": call["id"], "result": with(extension("t11", "working"), json!({ "resultType": "task" })) }));
    let second = m.answer()["result"]["task"]["taskId"].clone();
    let wider = sent(&mut m, "subscriptions/listen");
    assert_eq!(wider["params"]["notifications"], json!({ "taskIds": ["t11"] }), "what has ended is not asked about");
    m.host(json!({ "id": 4, "method": "tasks/result", "params": { "taskId": second } }));
    sent(&mut m, "tasks/get");
    news(&mut m, with(extension("t11", "completed"), json!({ "result": done() })));
    let told = m.told();
    assert!(told.iter().any(|line| line["id"] == 4 && line["result"]["content"] == done()["content"]), "{told:#?}");
}

#[test]
fn r129_who_asks_for_a_task_gets_one_also_where_the_answer_is_there_at_once() {
    let mut m = Machine::legacy_before_modern();
    m.host(json!({ "id": 1, "method": "tools/call", "params": { "name": "s__t", "arguments": {}, "task": {} } }));
    let call = sent(&mut m, "tools/call");
    m.child(json!({ "id": call["id"], "result": with(done(), json!({ "resultType": "complete" })) }));
    let made = m.answer()["result"]["task"].clone();
    assert_eq!((&made["status"], &made["ttl"]), (&json!("completed"), &Value::Null), "{made}");
    assert!(made["createdAt"].as_str().unwrap().ends_with('Z'));
    let task = &made["taskId"];
    m.host(json!({ "id": 2, "method": "tasks/result", "params": { "taskId": task } }));
    assert_eq!(m.answer()["result"], with(done(), json!({ "_meta": { RELATED: { "taskId": task } } })));
    get(&mut m, 3, task);
    assert_eq!(m.answer()["result"]["status"], "completed");
    assert!(m.sent().is_empty());
}

#[test]
fn questions_of_a_task_of_the_extension_are_requests_that_name_it() {
    let mut m = Machine::legacy_before_modern();
    let task = from_extension(&mut m);
    m.host(json!({ "id": 2, "method": "tasks/result", "params": { "taskId": task } }));
    let asked = sent(&mut m, "tasks/get");
    let state = with(
        extension("t9", "input_required"),
        json!({ "inputRequests": { "a": { "method": "elicitation/create", "params": form() }, "b": { "method": "roots/list" } } }),
    );
    m.child(json!({ "id": asked["id"], "result": state }));
    let questions = beside_status(&mut m, &task, "input_required");
    assert_eq!(questions.len(), 2, "{questions:#?}");
    assert!(questions.iter().all(|question| question["params"]["_meta"][RELATED]["taskId"] == task));
    assert_eq!(questions[0]["params"]["message"], "[s] m");
    m.pass(Duration::from_secs(30));
    assert!(m.sent().is_empty(), "nothing changes while a person thinks");
    let roots = json!({ "roots": [] });
    m.host(json!({ "id": questions[1]["id"], "result": roots }));
    m.host(json!({ "id": questions[0]["id"], "result": accepted() }));
    let update = sent(&mut m, "tasks/update");
    assert_eq!(update["params"]["inputResponses"], json!({ "a": accepted(), "b": roots }));
    m.child(json!({ "id": update["id"], "result": { "resultType": "complete" } }));
    m.pass(Duration::from_secs(2));
    let asked = sent(&mut m, "tasks/get");
    // A key that was answered is not asked again.
    m.child(json!({ "id": asked["id"], "result": state }));
    assert!(m.told().is_empty());
    m.pass(Duration::from_secs(2));
    let asked = sent(&mut m, "tasks/get");
    let error = json!({ "code": -32000, "message": "no luck" });
    m.child(json!({ "id": asked["id"], "result": with(extension("t9", "failed"), json!({ "error": error })) }));
    let answer = beside_status(&mut m, &task, "failed").remove(0);
    assert_eq!((&answer["id"], &answer["error"]), (&json!(2), &error));
}

#[test]
fn a_cancelled_task_of_the_extension_is_at_its_end_for_core() {
    let mut m = Machine::legacy_before_modern();
    let task = from_extension(&mut m);
    m.host(json!({ "id": 2, "method": "tasks/result", "params": { "taskId": task } }));
    let asked = sent(&mut m, "tasks/get");
    let asks = json!({ "inputRequests": { "a": { "method": "elicitation/create", "params": form() } } });
    m.child(json!({ "id": asked["id"], "result": with(extension("t9", "input_required"), asks) }));
    let question = beside_status(&mut m, &task, "input_required").remove(0);
    m.host(json!({ "id": 3, "method": "tasks/cancel", "params": { "taskId": task } }));
    let cancel = sent(&mut m, "tasks/cancel");
    m.child(json!({ "id": cancel["id"], "result": { "resultType": "complete" } }));
    let told = m.told();
    let of = |id: u64| told.iter().find(|line| line["id"] == id).unwrap().clone();
    assert_eq!(of(3)["result"]["status"], "cancelled");
    assert_eq!(code(&of(2)), -31012);
    assert!(told.iter().any(|line| line["params"]["requestId"] == question["id"]), "its question is taken back");
    m.host(json!({ "id": question["id"], "result": accepted() }));
    m.pass(Duration::from_secs(60));
    assert!(m.sent().is_empty());
    get(&mut m, 4, &task);
    assert_eq!(m.answer()["result"]["status"], "cancelled");
}

#[test]
fn a_call_that_can_only_be_a_task_is_waited_for_where_its_host_asks_for_none() {
    let needs = json!({ "code": -32021, "message": "needs", "data": { "requiredCapabilities": { "extensions": { TASKS: {} } } } });
    let mut m = Machine::legacy_before_modern();
    let begin = |m: &mut Machine, id: u64| {
        let wire = m.call(id, "t").unwrap();
        m.child(json!({ "id": wire, "error": needs }));
        let again = sent(m, "tools/call");
        assert_ne!(again["id"], wire);
        assert_eq!(
            again["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"][TASKS],
            json!({})
        );
        let own = format!("t{id}");
        m.child(
            json!({ "id": again["id"], "result": with(extension(&own, "working"), json!({ "resultType": "task" })) }),
        );
        assert!(m.told().is_empty());
        sent(m, "tasks/get")
    };
    let asked = begin(&mut m, 1);
    let asks = json!({ "inputRequests": { "a": { "method": "elicitation/create", "params": form() } } });
    m.child(json!({ "id": asked["id"], "result": with(extension("t1", "input_required"), asks) }));
    let question = m.answer();
    assert_eq!(question["params"].get("_meta"), None, "the host knows of no task");
    m.host(json!({ "id": question["id"], "result": accepted() }));
    let update = sent(&mut m, "tasks/update");
    m.child(json!({ "id": update["id"], "result": { "resultType": "complete" } }));
    m.pass(Duration::from_secs(2));
    let asked = sent(&mut m, "tasks/get");
    m.child(json!({ "id": asked["id"], "result": with(extension("t1", "completed"), json!({ "result": done() })) }));
    assert_eq!(m.answer(), json!({ "jsonrpc": "2.0", "id": 1, "result": done() }));
    assert_eq!(m.lost, 0);
    let asked = begin(&mut m, 2);
    m.host(json!({ "method": "notifications/cancelled", "params": { "requestId": 2 } }));
    let cancel = sent(&mut m, "tasks/cancel");
    assert_eq!(cancel["params"]["taskId"], "t2");
    m.child(json!({ "id": cancel["id"], "result": { "resultType": "complete" } }));
    m.child(json!({ "id": asked["id"], "result": extension("t2", "working") }));
    m.pass(Duration::from_secs(20));
    assert_eq!((m.sent(), m.told()), (vec![], vec![]));
    assert_eq!(m.lost, 1);
    begin(&mut m, 3);
    m.child_exits();
    assert_eq!(code(&m.answer()), -31010);
    assert_eq!(m.lost, 2);
}

#[test]
fn a_host_that_refuses_what_a_task_needs_ends_it() {
    let mut m = Machine::legacy_before_modern();
    let task = from_extension(&mut m);
    m.host(json!({ "id": 2, "method": "tasks/result", "params": { "taskId": task } }));
    let asked = sent(&mut m, "tasks/get");
    let asks = json!({ "inputRequests": { "a": { "method": "roots/list" } } });
    m.child(json!({ "id": asked["id"], "result": with(extension("t9", "input_required"), asks) }));
    let question = beside_status(&mut m, &task, "input_required").remove(0);
    m.host(json!({ "id": question["id"], "error": { "code": -32601, "message": "no" } }));
    assert_eq!(sent(&mut m, "tasks/cancel")["params"]["taskId"], "t9");
    assert_eq!(m.answer()["error"]["data"]["reason"], "input_not_provided");
}

// With scripted servers.

fn open(flags: &str, revision: &str) -> (Place, Rig) {
    let place = Place::new().server("c", flags);
    let mut host = place.start();
    if revision == MODERN {
        host.capabilities = able_with_tasks();
    }
    let told = host.open(revision);
    host.wait_for_tool("c__task_required");
    if revision == MODERN {
        let told = host.ask("server/discover", json!({}));
        assert_eq!(told["capabilities"]["extensions"][TASKS], json!({}), "{told}");
        assert_eq!(told["capabilities"].get("tasks"), None, "r56");
    } else if flags.is_empty() {
        assert!(told["capabilities"]["tasks"].is_object() && told["capabilities"].get("extensions").is_none());
    }
    (place, host)
}

/// Asks for the state of a task until it is there.
fn until_status(host: &mut Rig, task: &Value, status: &str) -> Value {
    let mut last = Value::Null;
    crate::rig::until(status, || {
        last = host.ask("tasks/get", json!({ "taskId": task }));
        last["status"] == status
    });
    last
}

#[test]
fn modern_hosts_have_tasks_at_servers_of_both_eras() {
    for flags in ["modern=only", ""] {
        let (_place, mut host) = open(flags, MODERN);
        let made = host.call("c__task_required", json!({ "text": "of c", "ms": 30 }));
        assert_eq!(made["resultType"], "task", "{flags}: {made}");
        let ended = until_status(&mut host, &made["taskId"], "completed");
        assert_eq!(
            (&ended["resultType"], &ended["result"]["content"][0]["text"]),
            (&json!("complete"), &json!("of c"))
        );
        let wrong = host.call("c__task_required", json!({ "is_error": true }));
        let ended = until_status(&mut host, &wrong["taskId"], "completed");
        assert_eq!(ended["result"]["isError"], true, "r130");
        let failed = host.call("c__task_required", json!({ "fail": true, "text": "no luck" }));
        let ended = until_status(&mut host, &failed["taskId"], "failed");
        assert_eq!(ended["error"]["message"], "no luck");
        let long = host.call("c__task_required", json!({ "ms": 60_000 }));
        let stream = host.request("subscriptions/listen", json!({ "notifications": { "taskIds": [long["taskId"]] } }));
        host.notification("notifications/subscriptions/acknowledged");
        let word = host.ask("tasks/cancel", json!({ "taskId": long["taskId"] }));
        assert_eq!(word["resultType"], "complete");
        let mut news = host.notification("notifications/tasks")["params"].take();
        while news["status"] != "cancelled" {
            news = host.notification("notifications/tasks")["params"].take();
        }
        assert_eq!(news["_meta"]["io.modelcontextprotocol/subscriptionId"], stream);
        assert_eq!(news["taskId"], long["taskId"]);
    }
}

#[test]
fn a_legacy_host_has_tasks_at_a_modern_server() {
    let (place, mut host) = open("modern=only", "2025-11-25");
    let tools = host.ask("tools/list", json!({}));
    let echo = tools["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "c__echo").unwrap();
    assert_eq!(echo["execution"], json!({ "taskSupport": "optional" }));
    let make = |host: &mut Rig, tool: &str, arguments: Value| {
        let made = host.ask("tools/call", json!({ "name": tool, "arguments": arguments, "task": { "ttl": 60000 } }));
        made["task"]["taskId"].clone()
    };
    let task = make(&mut host, "c__task_optional", json!({ "text": "of c", "ms": 30 }));
    let result = host.ask("tasks/result", json!({ "taskId": task }));
    assert_eq!(result["content"][0]["text"], "of c");
    assert_eq!(result["_meta"][RELATED]["taskId"], task);
    // It was told so by itself, too.
    let mut told = host.notification("notifications/tasks/status")["params"].take();
    while told["status"] != "completed" {
        told = host.notification("notifications/tasks/status")["params"].take();
    }
    assert_eq!(told["taskId"], task);
    let asks = make(&mut host, "c__task_elicit", json!({}));
    until_status(&mut host, &asks, "input_required");
    let result = host.ask("tasks/result", json!({ "taskId": asks }));
    assert!(result["content"][0]["text"].as_str().unwrap().contains("Ada"), "{result}");
    assert_eq!(host.asked.last().unwrap().1["_meta"][RELATED]["taskId"], asks);
    let plain = make(&mut host, "c__echo", json!({ "n": 1 }));
    assert_eq!(host.ask("tasks/result", json!({ "taskId": plain }))["_meta"][RELATED]["taskId"], plain);
    // A host that asks for none waits.
    let waited = host.call("c__task_required", json!({ "text": "waited", "ms": 30 }));
    assert_eq!(waited["content"][0]["text"], "waited", "{waited}");
    let requests = host.methods.clone();
    let received = host.finish();
    crate::spec::check_told("2025-11-25", &requests, &received);
    // The extension's own methods are in no schema that we have.
    let own = |line: &Value| line["method"].as_str().is_some_and(|method| method.starts_with("tasks/"));
    let sent: Vec<Value> =
        place.record("c").into_iter().filter(|line| line["method"] != "initialize" && !own(line)).collect();
    crate::spec::check_sent(MODERN, &place.asked("c"), &sent);
}
