//! Tasks, in both shapes.
//!
//! 2025-11-25: a call that asks for one gets it at once, and its result from `tasks/result`, which waits. The extension of
//! 2026-07-28: any call of a task tool whose request declares it becomes one; `tasks/get` has result and questions in it,
//! `tasks/update` takes the answers.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::catalog::member;
use crate::modern;
use crate::server::{Reply, Server};
use crate::tools::{self, Call};

/// All tasks of this process.
#[derive(Default)]
pub(crate) struct Tasks {
    table: Mutex<BTreeMap<String, Task>>,
    changed: Condvar,
}

struct Task {
    status: &'static str,
    created: String,
    updated: String,
    ttl: String,
    /// `"result":…` or `"error":…`, raw, once there is one.
    outcome: Option<Outcome>,
    /// It wants to ask, and does so when somebody reads its result (the extension: shows it in `tasks/get`).
    question: bool,
    /// Whether it has the extension's shape.
    modern: bool,
}

/// The request did not declare the extension that the tool needs.
const MISSING: &str = r#"{"code":-32021,"message":"needs the tasks extension","data":{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}"#;

#[derive(Clone)]
enum Outcome {
    Result(String),
    Error(String),
}

// === impl Tasks ===

impl Tasks {
    /// The answer to a call as far as tasks are concerned; `None`: it runs as a plain call.
    pub(crate) fn wanted(&self, server: &Server, call: &Call) -> Option<Reply> {
        let able = matches!(call.name.as_str(), "task_optional" | "task_required" | "task_elicit");
        if call.modern {
            return match (able, call.tasks_declared()) {
                (true, true) => Some(self.create(server, call, "{}")),
                (true, false) if call.name == "task_required" => Some(Reply::Error(MISSING.into())),
                _ => None,
            };
        }
        match (&call.task, able) {
            (None, _) if call.name == "task_required" => Some(Reply::error(-32601, "this tool runs only as a task")),
            (None, _) => None,
            (Some(_), false) => Some(Reply::error(-32601, "this tool does not run as a task")),
            (Some(task), true) => Some(self.create(server, call, task)),
        }
    }

    fn create(&self, server: &Server, call: &Call, asked: &str) -> Reply {
        let id = {
            let mut table = self.table();
            let id = format!("task-{}-{}", server.flags.generation, table.len() + 1);
            let ttl = serde_json::from_str::<serde_json::Value>(asked)
                .map_or_else(|_| "null".to_owned(), |asked| asked["ttl"].to_string());
            let now = now();
            let question = call.name == "task_elicit";
            let status = if question { "input_required" } else { "working" };
            table.insert(
                id.clone(),
                Task { status, created: now.clone(), updated: now, ttl, outcome: None, question, modern: call.modern },
            );
            id
        };
        if call.name != "task_elicit" {
            let (server, id, call) = (server.clone(), id.clone(), Call::new(&call.id, &call.params, call.modern));
            std::thread::spawn(move || {
                let reply = body(&server, &call);
                server.tasks.settle(&server, &id, reply);
            });
        }
        let created = self.shown(&id).unwrap_or_default();
        Reply::Result(match created.strip_prefix('{') {
            Some(flat) if call.modern => format!(r#"{{"resultType":"task",{flat}"#),
            _ => format!(r#"{{"task":{created}}}"#),
        })
    }

    fn settle(&self, server: &Server, id: &str, reply: Reply) {
        let modern = self.table().get(id).is_some_and(|task| task.modern);
        let (status, outcome) = match reply {
            Reply::Result(result) if !modern && result.contains(r#""isError":true"#) => {
                ("failed", Outcome::Result(result))
            }
            Reply::Result(result) => ("completed", Outcome::Result(result)),
            Reply::Error(error) => ("failed", Outcome::Error(error)),
            Reply::None => return,
        };
        self.update(server, id, status, Some(outcome));
    }

    /// Changes a task that is not at its end, and announces it.
    fn update(&self, server: &Server, id: &str, status: &'static str, outcome: Option<Outcome>) {
        let mut table = self.table();
        let Some(task) = table.get_mut(id).filter(|task| !ended(task.status)) else { return };
        task.status = status;
        task.updated = now();
        task.outcome = outcome;
        let modern = task.modern;
        drop(table);
        self.changed.notify_all();
        match self.shown(id) {
            Some(task) if modern => server.task_changed(id, &task),
            Some(task) => server.notify("notifications/tasks/status", Some(&task)),
            None => {}
        }
    }

    /// `tasks/get`, `tasks/list`, `tasks/cancel`, and the extension's `tasks/update`.
    pub(crate) fn answer(&self, server: &Server, method: &str, params: &str) -> Reply {
        if method == "tasks/list" {
            let ids: Vec<String> = self.table().keys().cloned().collect();
            let shown: Vec<String> = ids.iter().filter_map(|id| self.shown(id)).collect();
            return Reply::Result(format!(r#"{{"tasks":[{}]}}"#, shown.join(",")));
        }
        let id = member(params, "taskId").unwrap_or_default();
        if method == "tasks/cancel" {
            let status = self.table().get(&id).map(|task| task.status);
            if status.is_some_and(ended) {
                return Reply::error(-32602, "the task is at its end");
            }
            let modern = self.table().get(&id).is_some_and(|task| task.modern);
            let cancelled = Outcome::Error(r#"{"code":-32800,"message":"cancelled"}"#.into());
            self.update(server, &id, "cancelled", Some(cancelled));
            if modern {
                return Reply::Result("{}".into());
            }
        }
        if method == "tasks/update" {
            let asked = self.table().get_mut(&id).map(|task| std::mem::take(&mut task.question));
            return match asked {
                None => Reply::error(-32602, "unknown task"),
                Some(false) => Reply::Result("{}".into()),
                Some(true) => {
                    self.settle(server, &id, Reply::text(params));
                    Reply::Result("{}".into())
                }
            };
        }
        self.shown(&id).map_or_else(|| Reply::error(-32602, "unknown task"), Reply::Result)
    }

    /// `tasks/result`: waits for the end; asks the host on the way if the task wants to.
    pub(crate) fn result(&self, server: &Server, params: &str) -> Reply {
        let id = member(params, "taskId").unwrap_or_default();
        let related = format!(r#""_meta":{{"io.modelcontextprotocol/related-task":{{"taskId":"{id}"}}}}"#);
        let question = self.table().get_mut(&id).is_some_and(|task| std::mem::take(&mut task.question));
        if question {
            let mut params = tools::form("The task asks: your name?", None);
            params.insert_str(1, &format!("{related},"));
            let line = server.ask(None, "elicitation/create", Some(&params)).recv().unwrap_or_default();
            self.update(server, &id, "working", None);
            self.settle(server, &id, Reply::text(&line));
        }
        let table = self.table();
        let limit = Duration::from_mins(10);
        let (table, _) = self
            .changed
            .wait_timeout_while(table, limit, |table| table.get(&id).is_some_and(|task| !ended(task.status)))
            .expect("no holder of this lock panics");
        match table.get(&id).and_then(|task| task.outcome.clone()) {
            Some(Outcome::Result(mut result)) => {
                result.insert_str(1, &format!("{related},"));
                Reply::Result(result)
            }
            Some(Outcome::Error(error)) => Reply::Error(error),
            None => Reply::error(-32602, "unknown task"),
        }
    }

    fn shown(&self, id: &str) -> Option<String> {
        let table = self.table();
        let Task { status, created, updated, ttl, outcome, question, modern } = table.get(id)?;
        if *modern {
            let more = match outcome {
                _ if *question => format!(
                    r#","inputRequests":{{"who":{{"method":"elicitation/create","params":{}}}}}"#,
                    tools::form("The task asks: your name?", None)
                ),
                Some(Outcome::Result(result)) => format!(r#","result":{result}"#),
                Some(Outcome::Error(error)) if *status == "failed" => format!(r#","error":{error}"#),
                _ => String::new(),
            };
            return Some(format!(
                r#"{{"taskId":{},"status":"{status}","createdAt":"{created}","lastUpdatedAt":"{updated}","ttlMs":{ttl},"pollIntervalMs":20{more}}}"#,
                json!(id)
            ));
        }
        Some(format!(
            r#"{{"taskId":{},"status":"{status}","createdAt":"{created}","lastUpdatedAt":"{updated}","ttl":{ttl},"pollInterval":20,"x_future":1.0}}"#,
            json!(id)
        ))
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Task>> {
        self.table.lock().expect("no holder of this lock panics")
    }
}

/// What a task tool does, as a task or not.
pub(crate) fn body(server: &Server, call: &Call) -> Reply {
    if call.name == "task_elicit" && call.modern {
        return modern::ask(call).unwrap_or(Reply::None);
    }
    if call.name == "task_elicit" {
        let answer = server.ask(None, "elicitation/create", Some(&tools::form("Your name?", None)));
        return Reply::text(&answer.recv().unwrap_or_default());
    }
    std::thread::sleep(call.ms("ms", 0));
    let text = call.text("text", "the task's result");
    if call.is("fail") {
        Reply::error(-32000, &text)
    } else if call.is("is_error") {
        Reply::Result(format!(r#"{{"content":[{{"type":"text","text":{}}}],"isError":true}}"#, json!(text)))
    } else {
        Reply::text(&text)
    }
}

fn ended(status: &str) -> bool {
    matches!(status, "completed" | "failed" | "cancelled")
}

/// The time in the form of RFC 3339, in UTC.
fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, so that the leap day is the last of its year.
    let day = days + 719_468;
    let era = day / 146_097;
    let of_era = day % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let date = of_year - (153 * shifted + 2) / 5 + 1;
    format!("{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}
