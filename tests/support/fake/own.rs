//! The tools: each is one thing that servers do, or should not do. Descriptions name the arguments.

/// A tool of the fake's own, as it is listed; `more` are further members.
pub(crate) struct Own {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) properties: &'static str,
    pub(crate) more: &'static str,
}

/// A tool that waits and so gets a thread of its own, or one that does not.
const fn own(name: &'static str, description: &'static str) -> Own {
    Own { name, description, properties: "", more: "" }
}

const fn marked(name: &'static str, description: &'static str, more: &'static str) -> Own {
    Own { name, description, properties: "", more }
}

const READ_ONLY: &str = r#","annotations":{"readOnlyHint":true}"#;

/// All of them, in the order of the list.
pub(crate) const OWN: &[Own] = &[
    // What comes in.
    marked("echo", "the arguments as text, byte for byte; then the params", READ_ONLY),
    own("write", "as echo, but not read-only"),
    marked("echo_meta", "the raw _meta (or nothing) as text", READ_ONLY),
    marked(
        "structured",
        "arguments as structuredContent, byte for byte",
        r#","annotations":{"readOnlyHint":true},"outputSchema":{"type":"object"}"#,
    ),
    marked("received", "raw lines that came so far, as a JSON array; method: only these", READ_ONLY),
    marked("pending", "ids that have no answer yet, but this one", READ_ONLY),
    marked("cancelled", "ids of cancellations that came", READ_ONLY),
    marked("whoami", "label, generation, and about the process", READ_ONLY),
    marked("opening", "params of initialize", READ_ONLY),
    marked("level", "the log level that was set, or null", READ_ONLY),
    marked("subscriptions", "URIs subscribed to", READ_ONLY),
    // Results.
    own("big", "bytes: length of the text; char: of what"),
    own("content", "every kind of content, and an unknown one"),
    own("raw_result", "result: answered as it is"),
    own("is_error", "text: a result with isError"),
    own("reply_error", "code, message, data"),
    own("url_required", "the error -32042 with one URL"),
    own("oversize", "bytes: a line of that length, then nothing"),
    own("invalid_reply", "kind: both, neither, number, errorstring, nojsonrpc, cut, noversion, idarray"),
    own("double_reply", "answers twice"),
    own("string_id", "answers with the id as a string"),
    own("wrong_id", "id: answers under it first, then rightly unless only"),
    own("raw_line", "line: written as it is, with ID for the id; answers unless noreply"),
    own("notify_then_reply", "method, params, n: notifications and the answer in one write"),
    // Time.
    own("sleep", "ms; steps: progress messages; ends silently when cancelled"),
    own("late", "ms: answers that long after the cancellation"),
    own("block", "ms: the thread that reads stands still; then answers"),
    own("burn", "ms of processor time"),
    own("hang", "never answers, whatever comes"),
    own("progress", "n messages; ms between; bytes each; before and after the answer if after"),
    // The end.
    own("exit", "code; ms: after that long"),
    own("kill", "SIGKILL to itself"),
    own("die_before_reply", "code: exits without an answer"),
    own("reply_then_die", "code: answers, then exits at once"),
    own("half_reply", "then: exit, hang or newline after half of the answer"),
    own("close_stdout", "and lives on"),
    own("close_stdin", "answers, and reads nothing more"),
    own("stop_reading", "answers, and the thread that reads stands still for ever"),
    own("spawn_grandchild", "ignore_term, session, hold: a process that waits; its pid is the answer"),
    // Noise.
    own("noise", "kind: noise on stdout before the answer; n times"),
    own("flood_stdout", "n notifications of bytes each; method"),
    own("flood_stderr", "bytes, line: length of a line, 0 = none"),
    own("log", "level, data, logger, n: log messages"),
    own("notify", "method, params (raw), n, ms between"),
    // Asking the host. The answer's line is the text of the result.
    own("elicit", "mode, message, schema, url, id; complete"),
    own("sample", "text, id"),
    own("roots", "id"),
    own("ping_host", "id"),
    own("ask", "method, params (raw), id, timeout_ms, cancel_after_ms"),
    own("five", "n questions at once (elicitation and sampling); the answers as a JSON array"),
    own("rounds", "2026-07-28 only: n rounds of questions"),
    own("state_only", "2026-07-28 only: n rounds of requestState alone"),
    // Changes.
    own("change_tools", "add, remove (names), kind: then list_changed of the kind, unless silent"),
    own("storm", "n list_changed of kind, ms between; add: only before the last"),
    own("reload", "reads the catalog's file anew, then list_changed of all kinds"),
    own("updated", "uri: announces its update; n times"),
    own("end_listens", "2026-07-28 only: ends all subscriptions"),
    // Effects.
    own("ledger", "one line in the ledger; crash: before_run, after_run, half_reply, after_reply; error; ms"),
    marked("ledger_readonly", "as ledger, read-only", READ_ONLY),
    marked("ledger_idempotent", "as ledger, idempotent", r#","annotations":{"idempotentHint":true}"#),
    // Tasks of 2025-11-25.
    marked(
        "task_optional",
        "ms, text, is_error, fail: may run as a task",
        r#","execution":{"taskSupport":"optional"}"#,
    ),
    marked("task_required", "as task_optional: must run as a task", r#","execution":{"taskSupport":"required"}"#),
    marked("task_elicit", "asks by elicitation inside tasks/result", r#","execution":{"taskSupport":"optional"}"#),
    marked("task_forbidden", "never a task", r#","execution":{"taskSupport":"forbidden"}"#),
];
