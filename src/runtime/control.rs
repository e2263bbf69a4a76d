//! The control socket: what `status`, `logs`, `restart`, `stop`, `start`, `reload` and `top` talk to (`DESIGN.md`
//! chapter 10).
//!
//! A request is one line of JSON, such as `{"do":"status"}`; the reply is one line `{"ok": …}` or `{"error": "…"}`, and
//! `logs` sends lines before it. Each client has a task of its own, which asks the pump by an event and waits for the
//! answer beside the message path. Everything of a client is bounded: how many there are, how long its line is, how
//! long it may take to say or to take something. So a hung client costs a few kilobytes for a few seconds.

mod client;
pub mod place;
#[cfg(unix)]
#[path = "control/unix.rs"]
mod platform;
#[cfg(windows)]
#[path = "control/windows.rs"]
mod platform;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::lines::Lines;
use super::pump::Event;
use super::reload::Trigger;
use crate::engine::hub::Command;

/// Clients at a time; further ones wait in the system's queue until one goes or takes too long.
const CLIENTS: usize = 64;

/// What a client may ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Request {
    /// The state of everything.
    Status,
    /// The state of everything, with the last calls.
    Overview,
    /// What a name or URI stands for.
    Explain {
        /// As the host sees it, or as the server knows it.
        name: String,
    },
    /// The merged lists, as JSON text.
    Catalog,
    /// An order about a server.
    Order {
        /// What.
        command: Command,
        /// Whose.
        server: String,
        /// Pending calls may not finish.
        #[serde(default)]
        now: bool,
    },
    /// Read the configuration anew.
    Reload,
    /// The last lines of the log.
    Logs {
        /// Of one server; else of all and of the proxy.
        #[serde(default)]
        server: Option<String>,
        /// Go on with what comes.
        #[serde(default)]
        follow: bool,
    },
}

/// Serves until it is dropped; then the socket is gone.
#[derive(Debug)]
pub struct Control {
    _socket: platform::Socket,
    _tasks: JoinSet<()>,
}

/// What the clients' tasks need.
#[derive(Clone, Debug)]
struct Desk {
    events: mpsc::UnboundedSender<Event>,
    reload: Trigger,
    lines: Lines,
}

/// Opens the socket of this process. A failure is a warning: the proxy serves its host all the same.
pub fn open(events: mpsc::UnboundedSender<Event>, reload: Trigger, lines: Lines) -> Option<Control> {
    match platform::open() {
        Ok((socket, door)) => {
            let mut tasks = JoinSet::new();
            tasks.spawn(serve(door, Desk { events, reload, lines }));
            Some(Control { _socket: socket, _tasks: tasks })
        }
        Err(error) => {
            tracing::warn!("no control socket; status, logs and restart can't reach this proxy: {error}");
            None
        }
    }
}

/// Takes clients until its task is dropped, or the door can't be opened any more.
async fn serve(mut door: platform::Door, desk: Desk) {
    let mut clients = JoinSet::new();
    loop {
        while clients.try_join_next().is_some() {}
        if clients.len() >= CLIENTS {
            clients.join_next().await;
            continue;
        }
        let Some(stream) = door.next().await else { return };
        clients.spawn(client::serve(stream, desk.clone()));
    }
}
