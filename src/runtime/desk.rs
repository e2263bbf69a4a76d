//! What is done beside the message path: the record of calls, the cache of catalogs, and orders from outside.
//!
//! The intent's one `write` is done here and now; everything else is handed to a thread or to the pool.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::cache::Cache;
use super::inflight::Intents;
use super::ledger::{self, Ledger};
use super::pump::Event;
use super::shelf::Shelf;
use crate::engine::hub::{Command, Effect, Hub, Noted};
use crate::engine::outcome::{ARGUMENTS_BOUND, Intent, Loss, Mask, RESULT_BOUND, Row};
use crate::wire::id::HostId;

/// What came to the desk.
#[derive(Debug)]
pub enum DeskEvent {
    /// The ledger has something to say.
    Ledger(ledger::Event),
    /// One of our own resources was read.
    OwnRead {
        /// The host's request.
        id: HostId,
        /// Whether it is the ledger.
        unknown: bool,
        /// What it holds.
        text: String,
    },
    /// An order of a person.
    Order {
        /// What.
        command: Command,
        /// About which server.
        server: String,
        /// Pending calls may not finish.
        at_once: bool,
        /// What came of it.
        reply: tokio::sync::oneshot::Sender<Result<(), String>>,
    },
    /// Somebody asks for the status.
    Status(tokio::sync::oneshot::Sender<serde_json::Value>),
    /// Somebody asks for the merged lists, as JSON text.
    Catalog(tokio::sync::oneshot::Sender<serde_json::Value>),
    /// Somebody asks how the servers do, with everything that is odd about them.
    Health(tokio::sync::oneshot::Sender<serde_json::Value>),
    /// Somebody asks for the status with the last calls.
    Overview(tokio::sync::oneshot::Sender<serde_json::Value>),
    /// Somebody asks what a name or URI stands for.
    Explain(String, tokio::sync::oneshot::Sender<serde_json::Value>),
    /// Another configuration is to be taken over.
    Reload(Box<super::reload::Reloaded>),
}

impl DeskEvent {
    /// The host's request that it is about.
    pub fn request(&self) -> Option<&HostId> {
        match self {
            Self::OwnRead { id, .. } => Some(id),
            _ => None,
        }
    }
}

/// The desk.
#[derive(Debug)]
pub struct Desk {
    intents: Intents,
    ledger: Option<Ledger>,
    cache: Option<Cache>,
    events: mpsc::UnboundedSender<Event>,
    reload: Option<super::reload::Trigger>,
    /// A failed write is told once.
    intent_failed: bool,
}

/// How long the ledger's thread may take at the end.
const LAST_ROWS: Duration = Duration::from_millis(20);

impl Desk {
    /// A desk with its files in `state_dir` and `cache_dir`; without a directory, or where one can't be used, it goes
    /// on without, with a warning.
    pub fn open(state_dir: Option<&Path>, cache_dir: Option<&Path>, events: mpsc::UnboundedSender<Event>) -> Self {
        let intents = match state_dir.map(|dir| Intents::open(dir, ledger::unix_now())) {
            Some(Ok(intents)) => intents,
            Some(Err(error)) => {
                tracing::warn!(%error, "there is no in-flight file, so calls are not written down before they are sent: what only it would have kept is forgotten with the proxy");
                Intents::disabled()
            }
            None => Intents::disabled(),
        };
        let ledger = state_dir.and_then(|dir| match Ledger::open(dir, ledger::KEEP_SETTLED) {
            Ok((ledger, news)) => {
                forward(news, events.clone());
                Some(ledger)
            }
            Err(error) => {
                tracing::warn!(%error, "the ledger of unknown outcomes can't be opened");
                None
            }
        });
        Self { intents, ledger, cache: cache_dir.map(Cache::new), events, reload: None, intent_failed: false }
    }

    /// A server runs that was started with a launch of that fingerprint.
    pub fn launched(&mut self, key: &str, fingerprint: [u8; 32]) {
        if let Some(cache) = &mut self.cache {
            cache.launched(key, fingerprint);
        }
    }

    /// Whether there is an in-flight file, which keeps what the ledger has not.
    pub fn has_intents(&self) -> bool {
        self.intents.path().is_some()
    }

    /// Whether there is a ledger, whose first word is worth a wait.
    pub fn has_ledger(&self) -> bool {
        self.ledger.is_some()
    }

    /// Lets SIGHUP and orders reload the configuration.
    pub fn set_reload(&mut self, trigger: super::reload::Trigger) {
        self.reload = Some(trigger);
    }

    /// Reads the configuration anew.
    pub fn reload(&self) {
        if let Some(trigger) = &self.reload {
            trigger.fire();
        }
    }

    /// Something came.
    pub fn event(&mut self, now: Instant, hub: &mut Hub, event: DeskEvent) {
        match event {
            DeskEvent::Ledger(ledger::Event::Stored(ids)) => {
                for id in ids {
                    let settled = self.intents.settle(id);
                    self.told_once(settled);
                }
            }
            DeskEvent::Ledger(ledger::Event::Rows(rows)) => hub.note_rows(now, rows),
            DeskEvent::Ledger(ledger::Event::Ready) => {
                hub.set_outcomes_kept(true);
                hub.handle_rows_known(now);
            }
            DeskEvent::OwnRead { id, unknown, text } => hub.answer_own(&id, unknown, &text),
            DeskEvent::Order { command, server, at_once, reply } => {
                let _ = reply.send(hub.handle_command(now, command, &server, at_once));
            }
            DeskEvent::Status(reply) => {
                let _ = reply.send(hub.status());
            }
            DeskEvent::Catalog(reply) => {
                let _ = reply.send(hub.merged_lists().into());
            }
            DeskEvent::Health(reply) => {
                let _ = reply.send(hub.health());
            }
            DeskEvent::Overview(reply) => {
                let _ = reply.send(hub.overview());
            }
            DeskEvent::Explain(name, reply) => {
                let _ = reply.send(hub.explain(&name));
            }
            DeskEvent::Reload(reloaded) => hub.handle_reload(now, reloaded.config, reloaded.incoming),
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.flush();
        }
    }

    /// Effects come: what they write down is one `write` of them all.
    pub fn hold(&mut self) {
        self.intents.hold();
    }

    /// The effects are done: what they wrote down is in its file before any pipe is written.
    pub fn flush(&mut self) {
        let written = self.intents.flush();
        self.told_once(written);
    }

    /// Something is to be done.
    pub fn effect(&mut self, hub: &mut Hub, effect: Effect, shelf: &Shelf) {
        match effect {
            Effect::Intent(row) => self.begin(&row, shelf),
            Effect::Settle(id) => {
                let settled = self.intents.settle(id);
                self.told_once(settled);
            }
            Effect::Lost(row) => self.lost(*row, shelf),
            Effect::Late(id, mut settlement) => {
                let masker = shelf.masker();
                settlement.result = settlement.result.masked(RESULT_BOUND, &|text: &str| masker.mask(text));
                if let Some(ledger) = &mut self.ledger {
                    ledger.settle(id, *settlement);
                }
            }
            Effect::Repeated(of) => {
                if let Some(ledger) = &mut self.ledger {
                    ledger.mark_repeat(of, ledger::unix_now());
                }
            }
            Effect::Refused(of) => {
                if let Some(ledger) = &mut self.ledger {
                    ledger.mark_refused(of, ledger::unix_now());
                }
            }
            Effect::Cache { server, known } => {
                if let Some(cache) = &mut self.cache {
                    cache.keep(server, known);
                }
            }
            Effect::ReadOwn { id, unknown } => self.read_own(hub, id, unknown),
            Effect::Spawn { .. } | Effect::Stop { .. } | Effect::WatchParent | Effect::Exit => {}
        }
    }

    fn begin(&mut self, noted: &Noted, shelf: &Shelf) {
        let intent = Intent {
            id: noted.id,
            time: noted.time,
            server: &noted.server.key,
            tool: &noted.tool,
            exposed: &noted.exposed,
            host_request_id: noted.host_id.0.raw(),
            generation: u64::from(noted.generation),
            sequence: noted.sequence,
            digest: noted.digest,
            arguments: std::str::from_utf8(&noted.arguments).ok().filter(|text| !text.is_empty()),
            repeat_of: noted.repeat_of,
        };
        let masker = shelf.masker();
        // Who knows no secret need not look for one in every escaped string.
        let mask: &Mask<'_> = &|text: &str| masker.mask(text);
        let written = self.intents.begin(&intent, Some(mask).filter(|_| !masker.is_empty()));
        self.told_once(written);
    }

    fn lost(&mut self, mut row: Row, shelf: &Shelf) {
        let loss = Loss { reason: row.reason, exit: row.exit.clone(), at: row.lost_at };
        let row = self.intents.lost(row.id, &loss).unwrap_or_else(|| {
            let masker = shelf.masker();
            row.arguments = row.arguments.map(|kept| kept.masked(ARGUMENTS_BOUND, &|text: &str| masker.mask(text)));
            row
        });
        if let Some(ledger) = &mut self.ledger {
            ledger.insert(row);
        }
    }

    fn read_own(&mut self, hub: &mut Hub, id: HostId, unknown: bool) {
        if !unknown {
            let text = hub.status().to_string();
            return hub.answer_own(&id, false, &text);
        }
        let Some(ledger) = &mut self.ledger else { return hub.answer_own(&id, true, "[]") };
        let answer = ledger.list(ledger::Filter::default());
        let events = self.events.clone();
        forward_one(answer, events, id);
    }

    fn told_once(&mut self, written: std::io::Result<()>) {
        if let Err(error) = written
            && !std::mem::replace(&mut self.intent_failed, true)
        {
            tracing::warn!(%error, "a call could not be written down before it was sent; a kill of the proxy would forget it");
        }
    }

    /// The end: what the ledger's thread has is stored if that takes no time; the in-flight file has the rest.
    pub fn close(&mut self) {
        if let Some(ledger) = self.ledger.take() {
            ledger.close(LAST_ROWS);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "ends with the ledger's thread, and holds nothing worth a wait")]
fn forward(mut news: mpsc::UnboundedReceiver<ledger::Event>, events: mpsc::UnboundedSender<Event>) {
    tokio::spawn(async move {
        while let Some(event) = news.recv().await {
            if events.send(Event::Desk(DeskEvent::Ledger(event))).is_err() {
                return;
            }
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "bounded by its time limit")]
fn forward_one(answer: tokio::sync::oneshot::Receiver<Vec<Row>>, events: mpsc::UnboundedSender<Event>, id: HostId) {
    tokio::spawn(async move {
        let rows = tokio::time::timeout(Duration::from_secs(2), answer).await;
        let text = match rows {
            Ok(Ok(rows)) => serde_json::to_string(&rows).unwrap_or_else(|_| "[]".into()),
            Ok(Err(_)) | Err(_) => r#"{"error":"the ledger does not answer"}"#.into(),
        };
        let _ = events.send(Event::Desk(DeskEvent::OwnRead { id, unknown: true, text }));
    });
}
