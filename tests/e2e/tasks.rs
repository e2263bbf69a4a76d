//! Tasks of 2025-11-25: ids that lead back to their child.

use serde_json::{Value, json};

use crate::harness::{Host, Setup, raw_member};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// Makes a task; returns its exposed id.
fn create(host: &mut Host, tool: &str, arguments: &str) -> String {
    let params = format!(
        r#"{{"name":"{tool}","arguments":{arguments},"task":{{"ttl":60000}},"_meta":{{"progressToken":"t"}}}}"#
    );
    let task = host.ask("tools/call", &params).result()["task"].clone();
    assert_eq!(task["ttl"], 60000);
    task["taskId"].as_str().unwrap().to_owned()
}

fn of(task: &str) -> String {
    json!({ "taskId": task }).to_string()
}

/// What the scripted server got of that method.
fn received(host: &mut Host, server: &str, method: &str) -> Vec<Value> {
    let lines = host.call(&format!("{server}__received"), &json!({ "method": method }).to_string()).told();
    lines.as_array().unwrap().iter().map(|line| serde_json::from_str(line.as_str().unwrap()).unwrap()).collect()
}

#[test]
fn r126_equal_task_ids_of_two_children_lead_back_to_their_own() {
    let mut host = Setup::new().server("a", "").server("b", "").open();
    host.names("tools");
    let tasks =
        ["a", "b"].map(|key| create(&mut host, &format!("{key}__task_optional"), &format!(r#"{{"text":"of {key}"}}"#)));
    assert_ne!(tasks[0], tasks[1]);
    assert!(tasks.iter().all(|task| !task.contains("task-1-1") && task.len() > 20), "nobody can guess them: {tasks:?}");
    for (task, key) in tasks.iter().zip(["a", "b"]).rev() {
        let result = host.ask("tasks/result", &of(task));
        assert_eq!(result.text(), format!("of {key}"));
        assert_eq!(result.result()["_meta"][RELATED]["taskId"], **task);
        let shown = host.ask("tasks/get", &of(task));
        assert_eq!((&shown.result()["taskId"], &shown.result()["status"]), (&json!(task), &json!("completed")));
        assert!(shown.raw_result().contains(r#""x_future":1.0"#), "all else stays: {}", shown.raw);
        assert_eq!(received(&mut host, key, "tasks/get")[0]["params"]["taskId"], "task-1-1");
    }
    let listed = host.ask("tasks/list", "{}").result();
    let ids: Vec<&str> =
        listed["tasks"].as_array().unwrap().iter().map(|task| task["taskId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 2);
    assert!(tasks.iter().all(|task| ids.contains(&task.as_str())), "{ids:?} {tasks:?}");
}

#[test]
fn r126_unknown_and_foreign_task_ids_are_refused() {
    let mut host = Setup::new().server("a", "").open();
    create(&mut host, "a__task_optional", "{}");
    for task in ["", "task-1-1", "a.task-1-1", "nobody"] {
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            let error = host.ask(method, &of(task)).error(-32602);
            assert_eq!(error["data"]["source"], "mcp-proxy", "{method} {task}");
        }
    }
    host.ask("tasks/get", "{}").error(-32602);
}

#[test]
fn tasks_tell_their_states_under_the_ids_that_the_host_knows() {
    let mut host = Setup::new().server("a", "").open();
    let quick = create(&mut host, "a__task_optional", r#"{"ms":50}"#);
    let news = host.notification("notifications/tasks/status");
    assert_eq!((&news.params()["taskId"], &news.params()["status"]), (&json!(quick), &json!("completed")));
    let long = create(&mut host, "a__task_required", r#"{"ms":60000}"#);
    let waiting = host.request("tasks/result", &of(&long));
    let cancelled = host.ask("tasks/cancel", &of(&long)).result();
    assert_eq!((&cancelled["taskId"], &cancelled["status"]), (&json!(long), &json!("cancelled")));
    assert_eq!(host.notification("notifications/tasks/status").params()["taskId"], *long);
    host.wait(&waiting).error(-32800);
    let error = host.ask("tasks/cancel", &of(&long)).error(-32602);
    assert!(error.get("data").is_none(), "the child's own word: {error:#}");
}

#[test]
fn tasks_that_ask_ask_under_the_id_that_the_host_knows() {
    let mut host = Setup::new().server("a", "").server("b", "").open_able();
    host.names("tools");
    let task = create(&mut host, "b__task_elicit", "{}");
    assert_eq!(host.ask("tasks/get", &of(&task)).result()["status"], "input_required");
    let result = host.request("tasks/result", &of(&task));
    let question = host.asked("elicitation/create");
    assert_eq!(question.params()["_meta"][RELATED]["taskId"], *task);
    host.reply(
        &question,
        &format!(r#"{{"action":"accept","content":{{"name":"N"}},"_meta":{{"{RELATED}":{{"taskId":"{task}"}}}}}}"#),
    );
    let text = host.wait(&result).text();
    assert!(text.contains(r#""name":"N""#) && text.contains("task-1-1") && !text.contains(&task), "{text}");
}

#[test]
fn progress_goes_on_as_long_as_the_task() {
    let mut host = Setup::new().server("a", "").open();
    let task = create(&mut host, "a__task_optional", r#"{"ms":60000}"#);
    let calls = received(&mut host, "a", "tools/call");
    let call = calls.iter().find(|call| call["params"]["name"] == "task_optional").unwrap();
    let token = call["params"]["_meta"]["progressToken"].to_string();
    let tell = format!(r#"{{"method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#);
    host.call("a__notify", &tell);
    assert_eq!(
        raw_member(&host.notification("notifications/progress").raw_member("params").unwrap(), "progressToken")
            .unwrap(),
        "\"t\""
    );
    host.ask("tasks/cancel", &of(&task)).result();
    host.call("a__notify", &tell);
    assert!(host.notifications("notifications/progress").is_empty(), "the task is over");
}

#[test]
fn failed_tasks_and_refusals_are_the_childs_own() {
    let mut host = Setup::new().server("a", "").open();
    let failed = create(&mut host, "a__task_optional", r#"{"fail":true,"text":"no luck"}"#);
    let error = host.ask("tasks/result", &of(&failed)).error(-32000);
    assert_eq!(error["message"], "no luck");
    let wrong = create(&mut host, "a__task_optional", r#"{"is_error":true}"#);
    assert_eq!(host.ask("tasks/result", &of(&wrong)).result()["isError"], true);
    assert_eq!(host.ask("tasks/get", &of(&wrong)).result()["status"], "failed");
    host.call("a__task_required", "{}").error(-32601);
    host.ask("tools/call", r#"{"name":"a__task_forbidden","arguments":{},"task":{}}"#).error(-32601);
    assert_eq!(host.call("a__task_optional", r#"{"text":"plain"}"#).text(), "plain");
}

#[test]
fn a_child_without_tasks_seems_to_have_none() {
    let mut host = Setup::new().server("a", "").server("b", "caps=tools").open();
    let tools = host.list("tools");
    let execution = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap().get("execution").cloned();
    assert_eq!(execution("a__task_required"), Some(json!({ "taskSupport": "required" })));
    assert_eq!(execution("b__task_required"), None);
}

#[test]
fn tasks_of_a_former_life_are_gone_and_the_list_goes_on() {
    let mut host = Setup::new().server("a", "").server("b", "").open();
    host.names("tools");
    let lost = create(&mut host, "a__task_optional", r#"{"ms":60000}"#);
    let kept = create(&mut host, "b__task_optional", "{}");
    let waiting = host.request("tasks/result", &of(&lost));
    host.pending("a", 1);
    host.call("a__kill", "{}").error(-31010);
    let error = host.wait(&waiting).error(-31010);
    assert_eq!(error["data"]["method"], "tasks/result");
    host.call("a__echo", "{}");
    host.ask("tasks/get", &of(&lost)).error(-32602);
    let listed = host.ask("tasks/list", "{}").result();
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 1, "{listed:#}");
    assert_eq!(listed["tasks"][0]["taskId"], *kept);
}
