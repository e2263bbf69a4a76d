//! The two shapes of a task: that of 2025-11-25 (core), and that of the extension of 2026-07-28 (`PROTOCOL.md` 5.13).

use std::ops::Range;
use std::time::Duration;

use crate::wire::json::{get, key_is, members, quoted, string};

/// The extension's name.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// The key of `_meta` that relates a message of 2025-11-25 to a task; the extension has none.
pub const RELATED: &str = "io.modelcontextprotocol/related-task";

/// Members that mean the same: core, extension.
const PAIRS: [(&str, &str); 2] = [("ttl", "ttlMs"), ("pollInterval", "pollIntervalMs")];
/// Members that are no part of the state alone.
const BESIDE: [&str; 6] = ["taskId", "status", "resultType", "_meta", "result", "error"];
/// How often a state is asked for where its server does not say.
const POLL: u64 = 1000;
/// Bounds of what a server says about that, in milliseconds.
const POLLS: (u64, u64) = (20, 60_000);

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It runs.
    Working,
    /// It asks.
    InputRequired,
    /// It is over, with a result.
    Completed,
    /// It is over, with an error; in core also with a result that is one.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// Whose shape it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// Of 2025-11-25.
    Core,
    /// Of the extension.
    Extension,
}

/// What the object of a task says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The task's id.
    pub id: String,
    /// Its state.
    pub status: Status,
    /// When to ask again.
    pub poll: Duration,
}

impl Status {
    /// Reads a state.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Working, Self::InputRequired, Self::Completed, Self::Failed, Self::Cancelled]
            .into_iter()
            .find(|status| status.as_str() == text)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether no other follows.
    pub fn is_last(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// Reads the object of a task, of either shape; `None`: it is none.
pub fn read(text: &[u8], object: &Range<usize>) -> Option<Told> {
    let member = |name: &str| get(text, object.clone(), name).and_then(|at| string(text, at));
    let poll = PAIRS[1];
    let every = get(text, object.clone(), poll.0).or_else(|| get(text, object.clone(), poll.1));
    let every = every.and_then(|at| whole(&text[at])).unwrap_or(POLL);
    Some(Told {
        id: member("taskId")?.into_owned(),
        status: Status::parse(&member("status")?)?,
        poll: Duration::from_millis(every.clamp(POLLS.0, POLLS.1)),
    })
}

/// The members of a task's state in that shape, without braces, under that id and state. What neither shape knows stays.
pub fn state(text: &[u8], object: &Range<usize>, shape: Shape, id: &str, status: Status) -> String {
    let mut out = format!(r#""taskId":{},"status":"{}""#, quoted(id), status.as_str());
    let mut has_ttl = false;
    for member in members(text, object.clone()) {
        let key = String::from_utf8_lossy(&text[member.key.clone()]);
        if BESIDE.iter().chain(&["inputRequests", "requestState"]).any(|name| key_is(text, &member.key, name)) {
            continue;
        }
        let value = String::from_utf8_lossy(&text[member.value.clone()]);
        let pair = PAIRS.iter().find(|(core, new)| [core, new].iter().any(|name| key_is(text, &member.key, name)));
        match pair {
            Some(pair) => {
                has_ttl |= pair == &PAIRS[0];
                let name = if shape == Shape::Core { pair.0 } else { pair.1 };
                let value = whole(value.as_bytes()).map_or_else(|| value.to_string(), |ms| ms.to_string());
                out.push_str(&format!(r#","{name}":{value}"#));
            }
            None => out.push_str(&format!(",{key}:{value}")),
        }
    }
    // Core must say how long a task is kept; null: nobody knows.
    if shape == Shape::Core && !has_ttl {
        out.push_str(r#","ttl":null"#);
    }
    out
}

/// A number of milliseconds, as a whole one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was looked at")]
fn whole(token: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(token).ok()?;
    text.parse().ok().or_else(|| text.parse::<f64>().ok().filter(|ms| (0.0..9e15).contains(ms)).map(|ms| ms as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reads_the_same_in_both_shapes() {
        let core = r#"{"taskId":"t9","status":"working","createdAt":"c","lastUpdatedAt":"u","ttl":60000,"pollInterval":2000.0,"x":1.0}"#;
        let told = read(core.as_bytes(), &(0..core.len())).unwrap();
        assert_eq!(told, Told { id: "t9".into(), status: Status::Working, poll: Duration::from_secs(2) });
        let to = |text: &str, shape| state(text.as_bytes(), &(0..text.len()), shape, "e", Status::Completed);
        let extension = to(core, Shape::Extension);
        assert_eq!(
            extension,
            r#""taskId":"e","status":"completed","createdAt":"c","lastUpdatedAt":"u","ttlMs":60000,"pollIntervalMs":2000,"x":1.0"#
        );
        let full =
            format!(r#"{{"resultType":"complete","_meta":{{}},{extension},"result":{{}},"inputRequests":{{}}}}"#);
        let back = to(&full, Shape::Core);
        assert_eq!(
            back,
            r#""taskId":"e","status":"completed","createdAt":"c","lastUpdatedAt":"u","ttl":60000,"pollInterval":2000,"x":1.0"#
        );
        assert!(to(r#"{"taskId":"e","status":"working"}"#, Shape::Core).ends_with(r#","ttl":null"#));
        assert_eq!(read(b"{\"taskId\":1}", &(0..12)), None);
    }

    #[test]
    fn what_a_server_says_of_asking_again_has_bounds() {
        let poll = |text: &str| read(text.as_bytes(), &(0..text.len())).unwrap().poll.as_millis();
        assert_eq!(poll(r#"{"taskId":"a","status":"working"}"#), 1000);
        assert_eq!(poll(r#"{"taskId":"a","status":"working","pollIntervalMs":0}"#), 20);
        assert_eq!(poll(r#"{"taskId":"a","status":"working","pollInterval":1e9}"#), 60_000);
    }
}
