//! The servers of a world and its configuration.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use mcp_proxy::config::{Config, RestartWhen, Server, Start, Text, Transport, parse};
use mcp_proxy::engine::catalog::Listing;
use mcp_proxy::engine::facts::{Facts, ServerCapabilities};
use mcp_proxy::engine::hub::Known;
use mcp_proxy::wire::method::Revision;

/// A server's table, as far as the worlds differ in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    pub key: String,
    /// Another launch is another process.
    pub launch: u32,
    /// Hides the tool `idem`.
    pub filtered: bool,
    pub lazy: bool,
    pub policy: RestartWhen,
    pub max_pending: usize,
    pub idle_limit: bool,
}

/// What is set for all servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Common {
    /// Pings and `idle_stop`, which wake the machine for ever.
    pub restless: bool,
    /// Calls may take an hour: longer than a host is waited for.
    pub patient: bool,
}

const TEXT: &str = r#"
[proxy]
initialize_wait = "1s"
list_wait = "3s"
[servers.a]
command = "fake"
args = ["0"]
start_timeout = "5s"
list_timeout = "3s"
call_max_time = "20s"
stop_grace = "500ms"
drain_timeout = "2s"
ping_interval = "0s"
restart = { policy = "always", min = "250ms", max = "2s", attempts = 3, stable = "60s" }
"#;

fn base() -> &'static Config {
    static BASE: OnceLock<Config> = OnceLock::new();
    BASE.get_or_init(|| {
        let parsed = parse(Path::new("sim.toml"), TEXT, None);
        assert!(parsed.sound(), "{:?}", parsed.faults);
        parsed.config
    })
}

impl Table {
    pub fn new(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            launch: 0,
            filtered: false,
            lazy: false,
            policy: RestartWhen::Always,
            max_pending: 256,
            idle_limit: false,
        }
    }

    fn server(&self, common: Common) -> Server {
        let mut server = base().servers[0].clone();
        server.key.clone_from(&self.key);
        server.prefix.clone_from(&self.key);
        let Transport::Stdio(stdio) = &mut server.transport else { unreachable!("the text says so") };
        stdio.args = vec![Text(self.launch.to_string())];
        if self.filtered {
            server.tools.deny.push("idem".to_owned());
        }
        server.start = if self.lazy { Start::Lazy } else { Start::Eager };
        server.restart.policy = self.policy;
        server.max_pending = self.max_pending;
        server.call_idle_timeout = self.idle_limit.then_some(Duration::from_secs(4));
        if common.patient {
            server.call_max_time = Some(Duration::from_secs(3600));
        }
        if common.restless {
            server.ping_interval = Some(Duration::from_secs(30));
            server.idle_stop = Some(Duration::from_secs(45));
        }
        server
    }
}

pub fn config(tables: &[Table], common: Common) -> Arc<Config> {
    let servers = tables.iter().map(|table| table.server(common)).collect();
    Arc::new(Config { servers, ..base().clone() })
}

/// What a child of that key lists at a version of its catalog.
pub fn entries(array: &str, version: u32) -> Vec<String> {
    match array {
        "tools" => vec![
            r#"{"name":"call","inputSchema":{"type":"object"}}"#.to_owned(),
            r#"{"name":"idem","inputSchema":{"type":"object"},"annotations":{"idempotentHint":true}}"#.to_owned(),
            r#"{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#.to_owned(),
            format!(r#"{{"name":"v{version}","inputSchema":{{"type":"object"}}}}"#),
            format!(r#"{{"name":"w{version}","inputSchema":{{"type":"object"}}}}"#),
        ],
        "prompts" => ["p", "v", "w"].map(|name| format!(r#"{{"name":"{name}{version}"}}"#)).to_vec(),
        "resources" => ["v", "w"].map(|name| format!(r#"{{"uri":"mem:{name}{version}","name":"{name}"}}"#)).to_vec(),
        _ => Vec::new(),
    }
}

/// What the cache has of a server.
pub fn known(version: u32) -> Known {
    let of = |array: &str| entries(array, version).into_iter().map(Bytes::from).collect();
    let capabilities = ServerCapabilities { tools: true, tools_changed: true, ..ServerCapabilities::default() };
    Known {
        facts: Facts { revision: Revision::V2025_11_25, capabilities, instructions: None, identity: "fake 1".into() },
        listing: Listing { tools: of("tools"), ..Listing::default() },
        verdict: None,
        interactive: false,
    }
}
