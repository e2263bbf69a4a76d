//! One answer for each request of the host, and everything else that goes to it.

use std::time::Instant;

use bytes::Bytes;
use serde_json::json;

use super::{HostTag, Hub, Settles};
use crate::engine::child::ServerId;
use crate::engine::era::{self, Hints};
use crate::engine::outcome::OutcomeId;
use crate::engine::session::Batch;
use crate::wire::code::{self, RpcError};
use crate::wire::id::HostId;
use crate::wire::splice::{self, Edit};

/// Above this, progress for the host is dropped.
const PROGRESS_ROOM: usize = 1 << 20;
/// Above this, log messages are dropped, too.
const LOG_ROOM: usize = 2 << 20;

/// What may be dropped for a host that does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Droppable {
    /// First.
    Progress,
    /// Then.
    Log,
    /// Never.
    No,
}

impl Hub {
    /// Answers with a result that is JSON text.
    pub(super) fn answer(&mut self, id: &HostId, result: &str) {
        self.answer_with(id, result, Hints::None);
    }

    /// Answers with a result that is JSON text, and with hints for a modern host's cache.
    pub(super) fn answer_with(&mut self, id: &HostId, result: &str, hints: Hints) {
        if self.is_modern(id) {
            let result = era::complete(result, hints, self.server_info());
            return self.answer_as_is(id, &result);
        }
        self.answer_as_is(id, result);
    }

    /// Answers with a result that has all that the host's era asks for.
    pub(super) fn answer_as_is(&mut self, id: &HostId, result: &str) {
        let pieces = [
            Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{},"result":"#, id.0.raw())),
            Bytes::copy_from_slice(result.as_bytes()),
            Bytes::from_static(b"}"),
        ];
        self.answer_pieces(id, None, &pieces);
    }

    /// Answers with an error of ours.
    pub(super) fn answer_error(&mut self, id: &HostId, error: &RpcError) {
        self.answer_error_from(id, None, error);
    }

    /// Answers with an error of ours on behalf of a server; settles that outcome when it is accepted.
    pub(super) fn answer_error_from(&mut self, id: &HostId, server: Option<ServerId>, error: &RpcError) {
        let text = Bytes::from(error.response(id.0.raw()));
        self.answer_pieces(id, server, &[text]);
    }

    /// Answers with a child's own line, edited.
    pub(super) fn answer_edited(
        &mut self,
        id: &HostId,
        server: ServerId,
        frame: &Bytes,
        edits: &mut [Edit],
        outcome: Option<OutcomeId>,
    ) {
        let Some(flight) = self.session.in_flight.remove(id) else {
            self.settle_now(outcome);
            return;
        };
        if flight.batch.is_some() {
            let text = Bytes::from(splice::apply(frame, edits));
            if let Some(batch) = flight.batch.and_then(|number| self.session.batches.get_mut(&number)) {
                batch.outcomes.extend(outcome);
            }
            self.gather_answer(flight.batch, id, text);
            return;
        }
        let before = self.out.bytes();
        let settles = outcome.map_or(Settles::None, Settles::One);
        let tag = HostTag { server: u32::try_from(server.0).ok(), settles };
        self.out.push_edited(tag, frame, edits);
        self.out_of[server.0] += self.out.bytes() - before;
    }

    /// Answers with pieces that are one whole response. An id that is not under way gets nothing.
    pub(super) fn answer_pieces(&mut self, id: &HostId, server: Option<ServerId>, pieces: &[Bytes]) {
        let Some(flight) = self.session.in_flight.remove(id) else { return };
        if flight.batch.is_some() {
            self.gather_answer(flight.batch, id, Bytes::from(pieces.concat()));
            return;
        }
        self.send_pieces(server, Settles::None, pieces);
    }

    /// Says something to the host that answers nothing.
    pub(super) fn say(&mut self, text: &str) {
        self.out.push(HostTag::default(), text.as_bytes());
    }

    /// A notification on behalf of a child.
    pub(super) fn say_edited(&mut self, server: ServerId, frame: &Bytes, edits: &mut [Edit], droppable: Droppable) {
        let room = match droppable {
            Droppable::Progress => PROGRESS_ROOM,
            Droppable::Log => LOG_ROOM,
            Droppable::No => usize::MAX,
        };
        if self.out.bytes() > room {
            self.child_mut(server).record.dropped += 1;
            return;
        }
        let before = self.out.bytes();
        let tag = HostTag { server: u32::try_from(server.0).ok(), ..HostTag::default() };
        self.out.push_edited(tag, frame, edits);
        self.out_of[server.0] += self.out.bytes() - before;
    }

    fn send_pieces(&mut self, server: Option<ServerId>, settles: Settles, pieces: &[Bytes]) {
        let before = self.out.bytes();
        let server_number = server.and_then(|id| u32::try_from(id.0).ok());
        let tag = HostTag { server: server_number, settles };
        self.out.push_pieces(tag, pieces);
        if let Some(server) = server {
            self.out_of[server.0] += self.out.bytes() - before;
        }
    }

    fn gather_answer(&mut self, batch: Option<u64>, id: &HostId, answer: Bytes) {
        if let Some(batch) = batch.and_then(|number| self.session.batches.get_mut(&number)) {
            batch.ids.insert(id.clone());
        }
        self.gather(batch, answer);
    }

    /// Adds an answer to an array, and sends the array when it is whole.
    pub(super) fn gather(&mut self, batch: Option<u64>, answer: Bytes) {
        let Some(number) = batch else { return };
        let Some(batch) = self.session.batches.get_mut(&number) else { return };
        batch.open = batch.open.saturating_sub(1);
        if !answer.is_empty() {
            batch.answers.push(answer);
        }
        if batch.open > 0 {
            return;
        }
        let Batch { answers, outcomes, .. } = self.session.batches.remove(&number).unwrap_or_default();
        if answers.is_empty() {
            return;
        }
        let settles = self.settle_later(outcomes);
        let mut pieces = Vec::with_capacity(answers.len() * 2 + 1);
        for answer in answers {
            pieces.push(Bytes::from_static(if pieces.is_empty() { b"[" } else { b"," }));
            pieces.push(answer);
        }
        pieces.push(Bytes::from_static(b"]"));
        self.send_pieces(None, settles, &pieces);
    }

    pub(super) fn settle_now(&mut self, outcome: Option<OutcomeId>) {
        if let Some(outcome) = outcome {
            self.effect(super::Effect::Settle(outcome));
        }
    }

    /// Keeps the outcomes of an array until it was accepted.
    fn settle_later(&mut self, outcomes: Vec<OutcomeId>) -> Settles {
        if outcomes.is_empty() {
            return Settles::None;
        }
        let number = self.next_settling;
        self.next_settling += 1;
        self.settling.insert(number, outcomes);
        Settles::Array(number)
    }

    /// -31011: not sent, safe to send again.
    pub(super) fn unavailable(&self, now: Instant, server: ServerId, reason: &str) -> RpcError {
        let child = self.child(server);
        let state = child.state_name();
        let retry = Self::retry_after(now, child);
        let mut message =
            format!("Server \"{}\" is not available ({state}): {reason}. The request was not sent.", child.config.key);
        message.push_str(match retry {
            Some(_) => " It is safe to send it again a little later.",
            None => " Sending it again helps only after this was mended.",
        });
        RpcError::new(code::UNAVAILABLE, message)
            .with("server", child.config.key.as_str())
            .with("state", state)
            .with("reason", reason)
            .with_some("retryAfterMs", retry)
    }

    /// -31011 `busy`.
    pub(super) fn busy(&self, server: ServerId, what: &str) -> RpcError {
        let child = self.child(server);
        RpcError::new(
            code::UNAVAILABLE,
            format!(
                "Server \"{}\" is busy: {what}. The request was not sent; send it again when others are answered.",
                child.config.key
            ),
        )
        .with("server", child.config.key.as_str())
        .with("state", child.state_name())
        .with("reason", "busy")
        .with("retryAfterMs", 1000)
    }

    /// -31012 for something that a filter hides.
    pub(super) fn refused(&self, server: ServerId, what: &'static str, name: &str) -> RpcError {
        let key = self.child(server).config.key.as_str();
        RpcError::new(
            code::REFUSED,
            format!("The {what} \"{name}\" of server \"{key}\" is filtered out by the proxy's configuration. Use another one, or ask for the filter to be changed."),
        )
        .with("server", key)
        .with(what, name)
        .with("reason", "filtered")
    }

    /// An unknown resource, in the form of the host's era.
    pub(super) fn unknown_resource(&self, id: &HostId, uri: &str, candidates: &[ServerId]) -> RpcError {
        let keys: Vec<&str> = candidates.iter().map(|id| self.child(*id).config.key.as_str()).collect();
        let message = if keys.is_empty() {
            format!("No server offers the resource {uri}. List the resources and use a URI as it is listed there.")
        } else {
            format!(
                "The resource {uri} could belong to several servers: {}. Use the URI as it is listed, with its prefix.",
                keys.join(", ")
            )
        };
        let code = if self.is_modern(id) { code::INVALID_PARAMS } else { code::RESOURCE_NOT_FOUND };
        let error = RpcError::new(code, message).with("uri", uri);
        if keys.is_empty() { error } else { error.with("candidates", json!(keys)) }
    }
}
