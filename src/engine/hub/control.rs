//! Orders of a person: `restart`, `stop`, `start` (`DESIGN.md` chapters 4 and 7).

use std::time::Instant;

use super::Hub;
use crate::engine::child::{Rest, ServerId, State, Then};

/// An order about one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Command {
    /// A new life.
    Restart,
    /// No life until `start`.
    Stop,
    /// A life, if there is none.
    Start,
}

impl Hub {
    /// Carries out an order; `now_or_drain`: pending calls may not finish. Tells what is wrong otherwise.
    pub fn handle_command(&mut self, now: Instant, command: Command, key: &str, at_once: bool) -> Result<(), String> {
        let Some(id) = self.order.iter().copied().find(|id| self.child(*id).config.key == key) else {
            let known: Vec<_> = self.present().map(|child| child.config.key.as_str()).collect();
            return Err(format!("no server is named \"{key}\"; the servers are: {}", known.join(", ")));
        };
        tracing::info!(server = key, "a person ordered: {command:?}");
        match command {
            Command::Restart => self.restart_now(now, id, at_once),
            Command::Stop => {
                self.withdraw(now, id);
                self.drain(now, id, Then::Stop(Rest::ByPerson), at_once);
                // What waits was never sent: it is not kept until the pending calls are over.
                self.refuse_waiting(now, id, super::calls::STOPPED);
            }
            Command::Start => self.start_by_person(now, id),
        }
        Ok(())
    }

    fn restart_now(&mut self, now: Instant, id: ServerId, at_once: bool) {
        self.child_mut(id).restart.forgive();
        self.drain(now, id, Then::Start, at_once);
        if self.child(id).part.is_none() {
            self.publish(now, id);
        }
    }

    fn start_by_person(&mut self, now: Instant, id: ServerId) {
        self.child_mut(id).restart.forgive();
        match self.child(id).state {
            State::Ready { .. } | State::Starting => {}
            State::Draining { until, .. } => self.child_mut(id).state = State::Draining { until, then: Then::Start },
            State::Stopped(_) | State::Backoff { .. } | State::Failed { .. } => self.start(now, id),
        }
        if self.child(id).part.is_none() {
            self.publish(now, id);
        }
    }
}
