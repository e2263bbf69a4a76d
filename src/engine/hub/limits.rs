//! Time limits of a child: start, pages, calls, drain, back-off, quiet (`DESIGN.md` chapter 7, `PROTOCOL.md` 7.3).

use std::time::Instant;

use super::{Hub, own};
use crate::engine::child::{Child, Rest, ServerId, State, Then, Waiting};
use crate::engine::link::{Phase, Purpose};

impl Hub {
    /// When something of a child is due.
    pub(super) fn child_deadline(child: &Child) -> Option<Instant> {
        let state = match &child.state {
            State::Backoff { until } | State::Draining { until, .. } => Some(*until),
            _ => None,
        };
        let waiting = child.waiting.iter().map(|waiting| match waiting {
            Waiting::Call { until, .. } | Waiting::Unrouted { until, .. } => *until,
        });
        let link = child.link.as_ref().filter(|link| link.phase != Phase::Ending);
        let pages =
            link.into_iter().flat_map(|_| child.pagers.iter().filter_map(super::super::listing::Pager::deadline));
        let ping = link
            .filter(|link| own::may_ping(link) && !child.no_ping)
            .and_then(|link| child.config.ping_interval.map(|interval| link.last_traffic + interval));
        let idle = idle_stop(child);
        let stream = link.and_then(|link| link.listening.reopen_at);
        let roots = link.and_then(|link| link.roots_wanted.first().map(|(_, until)| *until));
        let wake = link.and_then(|link| link.wake);
        let level = link.and(child.level_until);
        let polls = link.and_then(|link| link.polls.values().filter_map(|poll| poll.at).min());
        [state, ping, idle, stream, roots, wake, level, polls].into_iter().flatten().chain(waiting).chain(pages).min()
    }

    /// Does what is due at a child.
    pub(super) fn child_timeout(&mut self, now: Instant, id: ServerId) {
        self.waiting_expired(now, id);
        match self.child(id).state {
            State::Backoff { until } if until <= now => self.start(now, id),
            State::Draining { until, .. } if until <= now => self.drain_over(now, id),
            _ => {}
        }
        if idle_stop(self.child(id)).is_some_and(|at| at <= now) {
            tracing::info!(server = %self.child(id).config.key, "unused for idle_stop; it is stopped until it is used");
            return self.drain(now, id, Then::Stop(Rest::UntilUsed), false);
        }
        let Some(link) = self.child_mut(id).link.as_mut().filter(|link| link.phase != Phase::Ending) else { return };
        let conn = link.conn;
        if link.wake.is_some_and(|wake| wake <= now) {
            for (wire, silence) in link.expired(now) {
                self.request_expired(now, conn, wire, silence);
            }
        }
        self.reopen_stream(now, conn);
        self.roots_due(now, conn);
        self.polls_due(now, conn);
        self.lower_level(now, id);
        self.drive_pagers(now, conn);
        self.ping_if_due(now, id);
    }

    fn request_expired(
        &mut self,
        now: Instant,
        conn: crate::engine::child::Conn,
        wire: crate::wire::id::WireId,
        silence: bool,
    ) {
        let Some(link) = self.link_mut(conn) else { return };
        if let Some(Purpose::Call(_)) = link.pending.get(&wire).map(|pending| &pending.purpose) {
            return self.call_expired(now, conn, wire, silence);
        }
        let Some(pending) = link.pending.remove(&wire) else { return };
        let timeouts = &self.child(conn.server).config;
        let (name, limit) = match pending.purpose {
            Purpose::Discover => ("the time for a probe", timeouts.start_timeout.min(own::PROBE_LIMIT)),
            Purpose::Initialize => ("start_timeout", timeouts.start_timeout),
            Purpose::Ping => ("ping_interval", timeouts.ping_interval.unwrap_or_default()),
            _ => ("list_timeout", timeouts.list_timeout),
        };
        // The handshake is never cancelled, and a probe may still be answered.
        if !matches!(pending.purpose, Purpose::Initialize | Purpose::Discover) {
            self.tell_cancelled(conn, wire, Some("\"no answer came in time\""));
            self.bury(conn, wire, None);
        }
        self.own_failed(now, conn, wire, &pending.purpose, None, &format!("no answer within {name} ({limit:?})"));
    }

    fn waiting_expired(&mut self, now: Instant, id: ServerId) {
        let over = |waiting: &Waiting| match waiting {
            Waiting::Call { until, .. } | Waiting::Unrouted { until, .. } => *until <= now,
        };
        if !self.child(id).waiting.iter().any(over) {
            return;
        }
        let (gone, stay): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.child_mut(id).waiting).into_iter().partition(over);
        self.child_mut(id).waiting = stay.into();
        let turn = matches!(self.child(id).state, State::Ready { .. }) && self.child(id).interactive;
        let reason = if turn {
            "another call to it did not end in time, and it takes one at a time".to_owned()
        } else {
            self.late_reason(id)
        };
        for waiting in gone {
            let host_id = match waiting {
                Waiting::Call { call, .. } => {
                    self.call_unsent(now, id, &call);
                    call.host_id
                }
                Waiting::Unrouted { id, .. } => id,
            };
            let error = self.unavailable(now, id, &reason);
            self.answer_error_from(&host_id, Some(id), &error);
        }
    }

    fn late_reason(&self, id: ServerId) -> String {
        self.child(id).record.last_error.clone().map_or_else(
            || "it was not ready within start_timeout".to_owned(),
            |error| format!("it was not ready within start_timeout; {error}"),
        )
    }

    fn drain_over(&mut self, now: Instant, id: ServerId) {
        if let Some(conn) = self.child(id).link.as_ref().map(|link| link.conn) {
            self.drain_ends(now, conn);
        }
    }
}

/// When an unused lazy child is stopped.
fn idle_stop(child: &Child) -> Option<Instant> {
    let limit = child.config.idle_stop?;
    let lazy = child.config.start == crate::config::Start::Lazy;
    let quiet = child.link.as_ref().is_some_and(|link| link.pending.is_empty() && link.questions.is_empty());
    match child.state {
        // A start may take longer than that, and something waits for it.
        State::Ready { since } if lazy && quiet => Some(child.last_used.max(since) + limit),
        _ => None,
    }
}
