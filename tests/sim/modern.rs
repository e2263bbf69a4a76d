//! A modern host that is asked in its calls, and comes back with answers or not (`PROTOCOL.md` 5.3).

use super::watch::What;
use super::world::World;

/// How a host comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Back {
    /// With an answer to each question.
    All,
    /// With none.
    Nothing,
    /// With a state of another call.
    OtherCall,
    /// With a no to each.
    Refused,
}

impl World {
    /// The host comes back to a round.
    pub fn retry(&mut self, at: usize, back: Back) {
        let id = self.fresh_id(false);
        let round = &mut self.watch.rounds[at];
        round.retries += 1;
        let (of, state, keys) = (round.of, round.state.0.clone(), round.keys.clone());
        let (method, mut params) = self.watch.requests[of].sent.clone();
        let questions = &self.watch.questions;
        let answer = |key: &str, question: Option<usize>| {
            let roots = question.map_or(key == "mcp-proxy.roots", |mark| questions[mark].roots);
            let question = question.map(|mark| format!(r#","question":{mark}"#)).unwrap_or_default();
            match (key, back) {
                _ if roots => r#"{"roots":[]}"#.to_owned(),
                ("mcp-proxy.repeat", Back::Refused) => r#"{"action":"decline"}"#.to_owned(),
                ("mcp-proxy.repeat", _) => r#"{"action":"accept","content":{"runAgain":true}}"#.to_owned(),
                (_, Back::Refused) => format!(r#"{{"action":"decline"{question}}}"#),
                _ => format!(r#"{{"action":"accept"{question}}}"#),
            }
        };
        let answers = keys.iter().map(|(key, question)| format!(r#""{key}":{}"#, answer(key, *question)));
        let answers = if back == Back::Nothing { String::new() } else { answers.collect::<Vec<_>>().join(",") };
        if back == Back::OtherCall {
            params.push_str(r#","arguments":{"n":99}"#);
        }
        let params = format!(r#"{params},"inputResponses":{{{answers}}},"requestState":"{state}""#);
        let token = format!("\"r{}\"", self.watch.requests.len());
        self.watch.asks(What::Retry { of }, &id, Some(token.clone()));
        self.watch.stats.add("retries");
        // The mark is the call's: if ever a retry were sent as a call of its own, it would be seen.
        let line = self.call_line(&id, method, &params, of, Some(&token));
        self.host_says(line);
    }

    /// A round that the host has not come back to.
    pub fn unanswered_round(&self) -> Option<usize> {
        self.watch.rounds.iter().position(|round| !round.old && round.retries == 0)
    }
}
