//! A scripted child process: its pipes and what it does with what it reads.

use std::collections::VecDeque;

use mcp_proxy::engine::child::Conn;
use mcp_proxy::wire::skim::Skimmed;
use serde_json::Value;

use super::config::entries;
use super::watch::{Mark, Watch, What, mark_at};

/// Bytes that a child's stdin takes before it is full.
pub const PIPE: usize = 600;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Spawning,
    Running,
    Exited(i32),
}

/// What stands in its stdout.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Out {
    Line(String),
    TooLong { id: u64 },
}

/// A request that it has read and not answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Todo {
    pub id: u64,
    pub method: String,
    pub mark: Option<Mark>,
    pub progress: bool,
    /// Its catalog as it was when the first page was asked for.
    pub version: u32,
}

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    Well,
    Error,
    Twice,
    StringId,
    Both,
    NoObject,
    TooLong,
    Never,
    /// A result, and word of a change behind it.
    WellAndChanged,
    /// Its handshake: another revision is wanted.
    OtherRevision,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proc {
    pub conn: Conn,
    pub key: String,
    pub stage: Stage,
    /// Accepted by its stdin and not read.
    pub pipe: Vec<u8>,
    /// The last byte that its stdin accepted ended no line.
    pub midway: bool,
    pub stdout: VecDeque<Out>,
    pub out_closed: bool,
    /// The proxy knows of its exit, or of the end of its stdout.
    pub told: bool,
    pub stop_ordered: bool,
    pub todo: Vec<Todo>,
    pub spoke: bool,
    pub initialized: bool,
    pub prompts: bool,
    /// What it tells of its handshake.
    pub old: bool,
}

impl Proc {
    pub fn new(conn: Conn, key: &str, prompts: bool) -> Self {
        Self {
            conn,
            key: key.to_owned(),
            stage: Stage::Spawning,
            pipe: Vec::new(),
            midway: false,
            stdout: VecDeque::new(),
            out_closed: false,
            told: false,
            stop_ordered: false,
            todo: Vec::new(),
            spoke: false,
            initialized: false,
            prompts,
            old: false,
        }
    }

    pub fn is_running(&self) -> bool {
        self.stage == Stage::Running
    }

    pub fn has_line(&self) -> bool {
        self.pipe.contains(&b'\n')
    }

    pub fn say(&mut self, line: String) {
        if !self.out_closed {
            self.stdout.push_back(Out::Line(line));
        }
    }

    /// Reads a line of its stdin.
    pub fn read(&mut self, watch: &mut Watch, version: u32) {
        let end = self.pipe.iter().position(|byte| *byte == b'\n').expect("there is a line");
        let line: Vec<u8> = self.pipe.drain(..=end).collect();
        let value: Value = serde_json::from_slice(&line)
            .unwrap_or_else(|error| panic!("{error}: a child got {}", String::from_utf8_lossy(&line)));
        assert_eq!(value["jsonrpc"], "2.0", "{value}");
        if !std::mem::replace(&mut self.spoke, true) {
            let first = value["method"].as_str();
            assert!(matches!(first, Some("initialize" | "server/discover")), "the handshake comes first: {value}");
        }
        match (value["method"].as_str(), value.get("id")) {
            (Some(method), Some(id)) => {
                let id = id.as_u64().expect("our numbers are integers");
                assert!(watch.wires.insert((self.conn.server.0, id)), "a number came twice: {value}");
                let mark = mark_at(&value, "/params/_meta/mark");
                let progress = value.pointer("/params/_meta/progressToken").is_some();
                if progress {
                    assert_eq!(value["params"]["_meta"]["progressToken"], id, "{value}");
                }
                self.todo.push(Todo { id, method: method.to_owned(), mark, progress, version });
            }
            (Some(method), None) => self.initialized |= method == "notifications/initialized",
            (None, _) => watch.answers_child(self.conn, &value),
        }
    }

    /// Answers a request of `todo`.
    pub fn answer(&mut self, at: usize, how: How, watch: &mut Watch, version: &mut u32) {
        let todo = self.todo.remove(at);
        if let Some(mark) = todo.mark
            && matches!(watch.requests[mark].what, What::Call { .. })
        {
            watch.executes(&self.key, mark);
        }
        // A probe for the other era is refused by all of them.
        let how = if todo.method == "server/discover" && how != How::Never { How::Error } else { how };
        let id = match how {
            How::StringId => format!("\"{}\"", todo.id),
            _ => todo.id.to_string(),
        };
        let result = self.result(&todo, watch);
        let ok = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        let failed = |data: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"no","data":{data}}}}}"#)
        };
        match how {
            How::Well | How::StringId => self.say(ok),
            How::Twice => {
                self.say(ok.clone());
                self.say(ok);
            }
            How::WellAndChanged => {
                self.say(ok);
                *version += 1;
                self.say(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#.to_owned());
            }
            How::Error => {
                let mark = todo.mark.map_or_else(|| "null".to_owned(), |mark| format!("\"{}#{mark}\"", self.key));
                self.say(failed(&format!(r#"{{"mark":{mark}}}"#)));
            }
            How::OtherRevision => self.say(failed(r#"{"supported":["2025-06-18"]}"#)),
            How::Both => {
                self.say(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}},"error":{{"code":1,"message":""}}}}"#));
            }
            How::NoObject => self.say(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":7}}"#)),
            How::TooLong => {
                if !self.out_closed {
                    self.stdout.push_back(Out::TooLong { id: todo.id });
                }
            }
            How::Never => {}
        }
    }

    fn result(&self, todo: &Todo, watch: &mut Watch) -> String {
        let said = todo.mark.map(|mark| format!("{}#{mark}", self.key)).unwrap_or_default();
        let array = match &*todo.method {
            "initialize" => {
                let (revision, prompts) = (
                    if self.old { "2025-06-18" } else { "2025-11-25" },
                    if self.prompts {
                        r#","prompts":{},"resources":{"subscribe":true},"logging":{},"completions":{}"#
                    } else {
                        ""
                    },
                );
                return format!(
                    r#"{{"protocolVersion":"{revision}","capabilities":{{"tools":{{"listChanged":true}}{prompts}}},"serverInfo":{{"name":"fake","version":"1"}}}}"#
                );
            }
            "tools/call" => return format!(r#"{{"content":[{{"type":"text","text":"{said}"}}]}}"#),
            "prompts/get" => return format!(r#"{{"messages":[],"description":"{said}"}}"#),
            "resources/read" => return format!(r#"{{"contents":[{{"uri":"mem:x","text":"{said}"}}]}}"#),
            "completion/complete" => return format!(r#"{{"completion":{{"values":["{said}"]}}}}"#),
            "tools/list" => "tools",
            "prompts/list" => "prompts",
            "resources/list" => "resources",
            "resources/templates/list" => "resourceTemplates",
            _ => return format!(r#"{{"said":"{said}"}}"#),
        };
        watch.served.entry(self.key.clone()).or_default().insert(todo.version);
        format!(r#"{{"{array}":[{}]}}"#, entries(array, todo.version).join(","))
    }
}

/// What a line over the bound tells.
pub fn too_long(id: u64) -> Skimmed {
    Skimmed { id: Some(id.to_string().into_bytes()), method: None, length: 1 << 30 }
}
