//! The repeat guard's own question: whether a call whose outcome is unknown may run again (`DESIGN.md` chapter 8).

use std::time::Instant;

use serde_json::json;

use super::calls::CALL_MAX_TIME;
use super::{Effect, Hub};
use crate::engine::child::ServerId;
use crate::engine::link::{About, Call};
use crate::engine::outcome::{Answer, OutcomeId, Verdict};
use crate::engine::session::{Asker, Place, Question};
use crate::wire::code::{self, RpcError};
use crate::wire::id::HostId;
use crate::wire::json as text;
use crate::wire::method::Method;

/// A call that waits for a person's word.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    server: ServerId,
    call: Box<Call>,
    of: OutcomeId,
    /// The call's own time limit goes on while the person thinks.
    pub(super) until: Instant,
}

impl Asked {
    /// Bytes of the host's line that is kept for it.
    pub(super) fn bytes(&self) -> usize {
        self.call.frame.len()
    }
}

impl Hub {
    pub(super) fn refuse_repeat(&mut self, server: ServerId, call: &Call, of: OutcomeId, text: &str) {
        let About::Tool(tool) = &call.about else { return };
        let error = RpcError::new(code::REFUSED, text)
            .with("server", self.child(server).config.key.as_str())
            .with("tool", tool.exposed.as_str())
            .with("reason", "unknown_outcome")
            .with("outcomeId", of.to_string());
        self.answer_error_from(&call.host_id, Some(server), &error);
    }

    pub(super) fn ask_about_repeat(&mut self, server: ServerId, call: Box<Call>, of: OutcomeId, text: &str) {
        if call.modern.is_some() {
            return self.ask_modern_about_repeat(server, &call, of, text);
        }
        let id = self.session.question_id();
        let about = call.host_id.clone();
        let question = Question { asker: Asker::Guard { about: about.clone() }, method: Method::Elicit };
        self.session.questions.insert(id, question);
        self.place(&about, Place::Asked(id));
        let until = call.since + self.max_time(server).unwrap_or(CALL_MAX_TIME);
        self.asked.insert(about, Asked { server, call, of, until });
        let params = repeat_question(text);
        self.say(&format!(r#"{{"jsonrpc":"2.0","id":{},"method":"elicitation/create","params":{params}}}"#, id.0));
    }

    /// The person answered the guard's question.
    pub(super) fn guard_answered(&mut self, now: Instant, about: &HostId, answer: Answer) {
        let Some(Asked { server, mut call, of, .. }) = self.asked.remove(about) else { return };
        let unix = self.unix(now);
        match self.guard.answered(unix, of, answer) {
            Verdict::Refuse { of, text } => {
                // Who said no is asked again next time; who said nothing has it refused once.
                if answer == Answer::None {
                    self.effect(Effect::Refused(of));
                }
                self.refuse_repeat(server, &call, of, &text);
            }
            Verdict::Send | Verdict::SendAsRepeat { .. } | Verdict::Ask { .. } => {
                call.repeat_of = Some(of);
                self.effect(Effect::Repeated(of));
                self.offer(now, server, call);
            }
        }
    }

    /// Takes back the questions whose call has no more time; a person who says nothing has the call refused once.
    pub(super) fn asked_expired(&mut self, now: Instant) {
        let over: Vec<HostId> =
            self.asked.iter().filter(|(_, asked)| asked.until <= now).map(|(id, _)| id.clone()).collect();
        for about in over {
            if let Some(Place::Asked(question)) = self.session.in_flight.get(&about).map(|flight| &flight.place) {
                let question = *question;
                self.session.questions.remove(&question);
                self.withdraw_question(question, "the call has no more time");
            }
            self.guard_answered(now, &about, Answer::None);
        }
    }

    /// Forgets a call that waits for a person's word.
    pub(super) fn forget_asked(&mut self, about: &HostId) {
        self.asked.remove(about);
    }
}

/// The guard's question, as the parameters of an elicitation.
pub(super) fn repeat_question(text: &str) -> serde_json::Value {
    json!({
        "message": text,
        "requestedSchema": { "type": "object", "properties": { "runAgain": {
            "type": "boolean", "title": "Run it again", "description": "Send the same call once more.", "default": true,
        } } },
    })
}

/// What a person said to it; `result` is that of the elicitation.
pub(super) fn repeat_answer(line: &[u8], result: Option<std::ops::Range<usize>>) -> Answer {
    let action = result.clone().and_then(|at| text::get(line, at, "action")).and_then(|at| text::string(line, at));
    let again = result.and_then(|at| text::path(line, at, &["content", "runAgain"]));
    match (action.as_deref(), again.map(|at| &line[at])) {
        (Some("accept"), Some(b"false")) | (Some("decline"), _) => Answer::Declined,
        (Some("accept"), _) => Answer::Accepted,
        _ => Answer::None,
    }
}
