//! How parked calls end: answered, lost, given up, expired (the table of `PROTOCOL.md` 5.3).

use std::time::Instant;

use bytes::Bytes;

use super::{CONSUMED_MAX, End, INTERACTION, Question, WIND_UP};
use crate::engine::child::Conn;
use crate::engine::hub::lost::Loss;
use crate::engine::hub::{Effect, Hub};
use crate::engine::link::{Call, Purpose};
use crate::engine::outcome::Reason;
use crate::wire::code::{self, RpcError};
use crate::wire::id::{HostId, OurId};
use crate::wire::message::Envelope;
use crate::wire::method::Method;

impl Hub {
    /// The child answered a parked call while nobody waits: kept for the retry. `false`: somebody waits.
    pub(in crate::engine::hub) fn keep_answer(
        &mut self,
        now: Instant,
        call: &Call,
        line: &Bytes,
        envelope: &Envelope,
    ) -> bool {
        let Some(number) = call.parked else { return false };
        self.refuse_rest(number);
        let Some(parked) = self.parked.get_mut(&number) else { return false };
        if parked.attached {
            self.consume(number);
            return false;
        }
        parked.expires = now + INTERACTION;
        parked.end = Some(End::Answered(Box::new(call.clone()), line.clone(), envelope.clone()));
        if let Some(outcome) = call.outcome {
            self.effect(Effect::Settle(outcome));
        }
        true
    }

    /// A call is over: its states are used up.
    pub(super) fn consume(&mut self, number: u64) {
        self.parked.remove(&number);
        self.consumed.push_back(number);
        if self.consumed.len() > CONSUMED_MAX {
            self.consumed.pop_front();
        }
    }

    /// A parked call was lost: the retry is told. `false`: somebody waits now.
    pub(in crate::engine::hub) fn keep_loss(&mut self, call: &Call, error: &RpcError) -> bool {
        let Some(number) = call.parked else { return false };
        self.refuse_rest(number);
        match self.parked.get_mut(&number) {
            Some(parked) if !parked.attached => {
                parked.end = Some(End::Error(error.clone()));
                true
            }
            Some(_) => {
                self.consume(number);
                false
            }
            None => false,
        }
    }

    /// After a fault of ours: a call that is at no child any more has ended, and its retry is told.
    pub(in crate::engine::hub) fn mend_parked(&mut self) {
        let at_child = |parked: &super::Parked| {
            self.link_of(parked.conn).is_some_and(|link| link.pending.contains_key(&parked.wire))
        };
        let lost = self.parked.iter().filter(|(_, parked)| parked.end.is_none() && !at_child(parked));
        for (number, attached, conn) in
            lost.map(|(number, parked)| (*number, parked.attached, parked.conn)).collect::<Vec<_>>()
        {
            self.refuse_rest(number);
            let error = self.lost_in_fault(conn.server);
            match self.parked.get_mut(&number) {
                Some(parked) if !attached => parked.end = Some(End::Error(error)),
                _ => self.consume(number),
            }
        }
    }

    /// Whether a call is open at its child while no request of the host waits for it.
    pub(in crate::engine::hub) fn is_detached(&self, call: &Call) -> bool {
        call.parked.and_then(|number| self.parked.get(&number)).is_some_and(|parked| !parked.attached)
    }

    /// Whether a call has questions that are not answered yet.
    pub(in crate::engine::hub) fn asks(&self, call: &Call) -> bool {
        call.parked.and_then(|number| self.parked.get(&number)).is_some_and(|parked| !parked.open.is_empty())
    }

    /// A child takes back a question that is put, or about to be, to a modern host.
    pub(in crate::engine::hub) fn unask(&mut self, our: OurId) -> bool {
        for parked in self.parked.values_mut() {
            if let Some(key) = parked.open.iter().find(|(_, question)| question.our == our).map(|(key, _)| key.clone())
            {
                parked.open.remove(&key);
                return true;
            }
        }
        self.unask_task(our)
    }

    /// The host cancels a request that was answered with questions: it gives the call up.
    pub(in crate::engine::hub) fn abandon_parked(&mut self, now: Instant, id: &HostId) {
        let found =
            self.parked.iter().find(|(_, parked)| !parked.attached && parked.last == *id && parked.end.is_none());
        if let Some(number) = found.map(|(number, _)| *number) {
            self.cancel_parked(now, number, Reason::Cancelled, "the host gave it up while it waited for its answers");
            self.consume(number);
        }
    }

    /// The request that waits for a parked call was cancelled: the record goes with it.
    pub(in crate::engine::hub) fn forget_parked(&mut self, call: &Call) {
        let Some(number) = call.parked else { return };
        self.refuse_rest(number);
        if self.parked.contains_key(&number) {
            self.consume(number);
        }
    }

    /// A call is over while questions of it are open: its child gets a word for each, so that nothing waits for one.
    fn refuse_rest(&mut self, number: u64) {
        if let Some(parked) = self.parked.get_mut(&number) {
            let (conn, open) = (parked.conn, std::mem::take(&mut parked.open));
            self.refuse_open(conn, open.into_values());
        }
    }

    fn refuse_open(&mut self, conn: Conn, open: impl Iterator<Item = Question>) {
        for question in open {
            let asked = self.link_mut(conn).and_then(|link| link.questions.remove(&question.child_id));
            if asked.is_some() {
                match question.method {
                    Method::Elicit => self.answer_child(conn, &question.child_id, r#"{"action":"cancel"}"#),
                    // What clients answer when a person says no to sampling.
                    Method::CreateMessage => self.answer_child_error(conn, &question.child_id, -1, "nobody answered"),
                    _ => self.answer_child_error(conn, &question.child_id, code::INTERNAL, "nobody answered"),
                }
            }
        }
    }

    pub(super) fn parked_expired(&mut self, now: Instant, number: u64) {
        let Some(parked) = self.parked.get_mut(&number) else { return };
        if parked.end.is_some() {
            // A tombstone, too, has its time.
            return self.consume(number);
        }
        let conn = parked.conn;
        if !parked.winding_up {
            parked.winding_up = true;
            parked.expires = now + WIND_UP;
            let open = std::mem::take(&mut parked.open);
            return self.refuse_open(conn, open.into_values());
        }
        self.cancel_parked(now, number, Reason::Timeout, "the host did not come back with its answers");
    }

    /// Ends a parked call at the child; a later retry is told.
    fn cancel_parked(&mut self, now: Instant, number: u64, reason: Reason, what: &str) {
        let Some(parked) = self.parked.get_mut(&number) else { return };
        parked.expires = now + INTERACTION;
        let (conn, wire) = (parked.conn, parked.wire);
        let open = std::mem::take(&mut parked.open);
        self.refuse_open(conn, open.into_values());
        let Some(link) = self.link_mut(conn) else { return };
        let Some(Purpose::Call(call)) = link.pending.remove(&wire).map(|pending| pending.purpose) else { return };
        self.cancel_sent(conn, wire, &call, Some("\"the host did not come back\""));
        self.write_loss(now, conn.server, &call, &Loss::new(reason, what));
        self.bury(conn, wire, call.outcome);
        let key = self.child(conn.server).config.key.as_str();
        let error = RpcError::new(
            code::REFUSED,
            format!("The call to server \"{key}\" was ended: {what}. It may have run in part."),
        )
        .with("server", key)
        .with("reason", "input_expired")
        .with_some("outcomeId", call.outcome.map(|outcome| outcome.to_string()));
        if let Some(parked) = self.parked.get_mut(&number) {
            parked.end = Some(End::Error(error));
        }
        self.drained(now, conn.server);
    }

    /// A state of ours whose record is gone: the proxy was started anew since.
    pub(super) fn forgotten(&self, server: &str, outcome: Option<String>) -> RpcError {
        let hint = "It may or may not have run. Check before calling it again.";
        RpcError::new(
            code::UNKNOWN_OUTCOME,
            format!("The outcome of the call to server \"{server}\" is unknown: the proxy no longer has it. {hint}"),
        )
        .with("server", server)
        .with("reason", "proxy_stopped")
        .with_some("outcomeId", outcome)
        .with("hint", hint)
    }
}
