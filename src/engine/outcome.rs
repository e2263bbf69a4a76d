//! What a lost answer means: the id, the reason and the row of a call whose outcome is unknown, and the guard against
//! repeating it blindly (`DESIGN.md` chapter 8).
//!
//! Everything here is a value. [`crate::runtime::inflight`] and [`crate::runtime::ledger`] keep these values on disk.

mod digest;
mod guard;
mod kept;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use digest::{Digest, Digester, LITERAL_ABOVE};
pub use guard::{Answer, CAPACITY, GuardRow, RepeatGuard, Standing, Verdict, WINDOW_MS};
pub use kept::{ARGUMENTS_BOUND, Kept, Mask, RESULT_BOUND, mask_json, no_mask};

/// The id of one outcome, fixed with the intent: `u-` and 13 characters, from 64 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutcomeId(u64);

/// A point in time: milliseconds since the Unix epoch; RFC 3339 in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMs(pub u64);

/// Why no response will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The server's process ended.
    ChildExited,
    /// Its output ended, or a remote connection broke.
    ConnectionLost,
    /// One of the two time limits of a call passed.
    Timeout,
    /// The host cancelled it after it was sent.
    Cancelled,
    /// An answer came that is larger than `max_message`.
    ResponseTooLarge,
    /// An answer came that is no valid answer.
    InvalidResponse,
    /// A reload replaced or removed the server before the call finished.
    ServerReplaced,
    /// The proxy was told to end.
    ProxyStopped,
    /// The proxy vanished; found in its in-flight file.
    ProxyKilled,
}

/// How a process ended: `{"code": 1}` or `{"signal": "SIGKILL"}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// With a code of its own.
    Code(i32),
    /// By a signal, by its name.
    Signal(String),
}

/// What a late response was: three different things, never confused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettledAs {
    /// A result without `isError`.
    Success,
    /// A result with `isError`: the tool itself says that it failed.
    ToolError,
    /// A JSON-RPC error.
    ProtocolError,
}

/// A late response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// What it was.
    pub kind: SettledAs,
    /// When it came.
    pub at: UnixMs,
    /// The result or the error, masked and bounded.
    pub result: Kept,
}

/// What a person or an agent found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResolvedAs {
    /// The call did what it was asked to do.
    Done,
    /// It did not.
    NotDone,
}

/// The word of a person or an agent about what happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resolution {
    /// What was found.
    #[serde(rename = "as")]
    pub verdict: ResolvedAs,
    /// How, in their words; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// When it was said.
    pub at: UnixMs,
}

/// The state of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nobody knows.
    Unknown,
    /// A late response came.
    Settled,
    /// Somebody said what happened.
    Resolved,
}

/// What is known of a call before it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Intent<'a> {
    /// The id of its outcome.
    pub id: OutcomeId,
    /// When it is sent.
    pub time: UnixMs,
    /// The key of the server's table.
    pub server: &'a str,
    /// The child's own name of the tool.
    pub tool: &'a str,
    /// The name that the host used.
    pub exposed: &'a str,
    /// The host's id of the request, as the JSON token that it is.
    pub host_request_id: &'a str,
    /// The connection that it is written to.
    pub generation: u64,
    /// Our number of the request on that connection.
    pub sequence: u64,
    /// Of server, tool and arguments. `None`: it can be told from these whenever it is asked for.
    pub digest: Option<Digest>,
    /// The arguments as JSON text, unmasked; `None`: the call has none, or only the digest may be kept.
    pub arguments: Option<&'a str>,
    /// The row that this call repeats.
    pub repeat_of: Option<OutcomeId>,
}

/// How a call was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Why no response will come.
    pub reason: Reason,
    /// How the server's process ended, where it did.
    pub exit: Option<Exit>,
    /// When it was noticed.
    pub at: UnixMs,
}

/// A call of unknown outcome, as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its id.
    pub id: OutcomeId,
    /// When the call was sent.
    pub time: UnixMs,
    /// When its outcome became unknown.
    pub lost_at: UnixMs,
    /// The key of the server's table.
    pub server: String,
    /// The child's own name of the tool.
    pub tool: String,
    /// The name that the host used.
    pub exposed: String,
    /// The arguments, masked and bounded; `None`: the call had none, or only the digest is kept.
    pub arguments: Option<Kept>,
    /// Of server, tool and arguments.
    pub digest: Digest,
    /// The host's id of the request, as the JSON token that it is.
    pub host_request_id: String,
    /// The connection that it was written to.
    pub generation: u64,
    /// Our number of the request on that connection.
    pub sequence: u64,
    /// Why no response came.
    pub reason: Reason,
    /// How the server's process ended, where it did.
    pub exit: Option<Exit>,
    /// The late response, if one came.
    pub settlement: Option<Settlement>,
    /// What somebody said about it.
    pub resolution: Option<Resolution>,
    /// The row that this call repeated.
    pub repeat_of: Option<OutcomeId>,
    /// When this call was repeated.
    pub repeated_at: Option<UnixMs>,
    /// When an identical call was refused because of this row.
    pub refused_at: Option<UnixMs>,
    /// The proxy that sent it.
    pub pid: u32,
}

/// A text that is no [`OutcomeId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of an outcome: `u-` and 13 characters were expected")]
pub struct NotAnId;

// === impl OutcomeId ===

/// Lower-case base32 without the letters that are misread.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const CHARACTERS: usize = 13;

impl OutcomeId {
    /// Makes an id of 64 random bits.
    pub fn from_random(bits: u64) -> Self {
        Self(bits)
    }

    /// The id as its 15 characters.
    pub fn text(self) -> [u8; CHARACTERS + 2] {
        let mut text = *b"u-0000000000000";
        let mut rest = self.0;
        for place in text[2..].iter_mut().rev() {
            *place = ALPHABET[(rest & 31) as usize];
            rest >>= 5;
        }
        text
    }
}

impl FromStr for OutcomeId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let digits = text.strip_prefix("u-").ok_or(NotAnId)?;
        if digits.len() != CHARACTERS {
            return Err(NotAnId);
        }
        let mut bits = 0_u128;
        for digit in digits.bytes() {
            let value = ALPHABET.iter().position(|&known| known == digit).ok_or(NotAnId)?;
            bits = bits << 5 | value as u128;
        }
        u64::try_from(bits).map(Self).map_err(|_| NotAnId)
    }
}

impl fmt::Display for OutcomeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(std::str::from_utf8(&self.text()).expect("the alphabet is ASCII"))
    }
}

impl fmt::Debug for OutcomeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for OutcomeId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

// === impl UnixMs ===

impl UnixMs {
    /// The milliseconds from `earlier` to this; 0 if it is not earlier.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for UnixMs {
    /// RFC 3339 in UTC, with milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0 / 1000, self.0 % 1000);
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Years that begin in March, in eras of 400: the leap day is then the last of a year.
        let day_zero = days + 719_468;
        let (era, day_of_era) = (day_zero / 146_097, day_zero % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

impl Serialize for UnixMs {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

// === impl Reason ===

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 9] = [
        Self::ChildExited,
        Self::ConnectionLost,
        Self::Timeout,
        Self::Cancelled,
        Self::ResponseTooLarge,
        Self::InvalidResponse,
        Self::ServerReplaced,
        Self::ProxyStopped,
        Self::ProxyKilled,
    ];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChildExited => "child_exited",
            Self::ConnectionLost => "connection_lost",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::ResponseTooLarge => "response_too_large",
            Self::InvalidResponse => "invalid_response",
            Self::ServerReplaced => "server_replaced",
            Self::ProxyStopped => "proxy_stopped",
            Self::ProxyKilled => "proxy_killed",
        }
    }

    /// What happened, as a clause of a sentence.
    pub fn clause(self) -> &'static str {
        match self {
            Self::ChildExited => "the server exited before it answered",
            Self::ConnectionLost => "the connection to the server was lost before it answered",
            Self::Timeout => "the server did not answer in time",
            Self::Cancelled => "it was cancelled after it had been sent",
            Self::ResponseTooLarge => "the answer was too large to be passed on",
            Self::InvalidResponse => "the answer was not valid",
            Self::ServerReplaced => "the server was replaced by a reload before it answered",
            Self::ProxyStopped => "the proxy was stopped before the answer came",
            Self::ProxyKilled => "the proxy was killed before the answer came",
        }
    }
}

impl FromStr for Reason {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|reason| reason.name() == name).ok_or(())
    }
}

// === impl Settlement ===

impl Settlement {
    /// Keeps a late result or error (JSON text): masked, and no more than [`RESULT_BOUND`] bytes of it.
    pub fn new(kind: SettledAs, at: UnixMs, result: &str, mask: &Mask<'_>) -> Self {
        Self { kind, at, result: Kept::new(result, RESULT_BOUND, mask) }
    }
}

// === impl SettledAs ===

impl SettledAs {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ToolError => "tool_error",
            Self::ProtocolError => "protocol_error",
        }
    }
}

impl FromStr for SettledAs {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        [Self::Success, Self::ToolError, Self::ProtocolError].into_iter().find(|kind| kind.name() == name).ok_or(())
    }
}

// === impl ResolvedAs ===

impl ResolvedAs {
    /// Its name in JSON and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NotDone => "not-done",
        }
    }
}

// === impl State ===

impl State {
    /// Its name in JSON and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Settled => "settled",
            Self::Resolved => "resolved",
        }
    }
}

// === impl Row ===

impl Row {
    /// The request to the child, as logs and errors name it: `generation:sequence`.
    pub fn request(&self) -> String {
        format!("{}:{}", self.generation, self.sequence)
    }

    /// Its state, which follows from what is known.
    pub fn state(&self) -> State {
        match (&self.resolution, &self.settlement) {
            (Some(_), _) => State::Resolved,
            (None, Some(_)) => State::Settled,
            (None, None) => State::Unknown,
        }
    }
}

// === impl Exit ===

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => f.write_str(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_and_reversible() {
        for bits in [0, 1, 31, 32, u64::MAX, 0x0123_4567_89ab_cdef] {
            let id = OutcomeId::from_random(bits);
            let text = id.to_string();
            assert_eq!(text.len(), 15);
            assert_eq!(text.parse(), Ok(id));
        }
        for bad in ["", "u-", "u-0", "x-0000000000000", "u-000000000000i", "u-g000000000000", "u-00000000000000"] {
            assert_eq!(bad.parse::<OutcomeId>(), Err(NotAnId), "{bad}");
        }
    }

    #[test]
    fn times_are_rfc_3339() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
            (1_767_225_599_001, "2025-12-31T23:59:59.001Z"),
            (1_767_225_600_000, "2026-01-01T00:00:00.000Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(UnixMs(ms).to_string(), text);
        }
    }

    #[test]
    fn names_are_those_of_serde() {
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{}\"", reason.name()));
            assert_eq!(reason.name().parse(), Ok(reason));
        }
        for kind in [SettledAs::Success, SettledAs::ToolError, SettledAs::ProtocolError] {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{}\"", kind.name()));
        }
        for verdict in [ResolvedAs::Done, ResolvedAs::NotDone] {
            assert_eq!(serde_json::to_string(&verdict).unwrap(), format!("\"{}\"", verdict.name()));
        }
        assert_eq!(serde_json::to_string(&Exit::Signal("SIGKILL".into())).unwrap(), r#"{"signal":"SIGKILL"}"#);
        assert_eq!(serde_json::to_string(&Exit::Code(1)).unwrap(), r#"{"code":1}"#);
    }
}
