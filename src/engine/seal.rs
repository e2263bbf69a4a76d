//! What a host carries for us, sealed: `requestState` from one round to the next (`PROTOCOL.md` 5.3, 5.5), and ids of
//! tasks (6.12).

use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce};
use serde::{Deserialize, Serialize};

use super::era::Era;

/// What a state stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A call that is open at a legacy child.
    Parked {
        /// Which.
        id: u64,
        /// In which round.
        round: u32,
        /// Its outcome, if we are gone by then.
        outcome: Option<String>,
    },
    /// A modern child's own state.
    Pass {
        /// What it gave; `None`: nothing.
        state: Option<String>,
    },
    /// Our own question for roots, before a call.
    Roots {
        /// Which question.
        id: u64,
    },
    /// URLs that a person visits before the call goes out anew, by the child's ids.
    Urls {
        /// Which question.
        id: u64,
        /// Those ids, in the order of the keys.
        ids: Vec<String>,
    },
    /// The repeat guard's question.
    Own {
        /// Which question.
        id: u64,
        /// The row.
        of: String,
    },
    /// A task of a server: its id at the host.
    Task {
        /// The server's own id of it.
        own: String,
        /// Which era's host knows it.
        host: Era,
        /// Which process or endpoint it is of: a server of that key that is another one by now knows nothing of it.
        config: u64,
    },
}

/// A state before it is sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// What it stands for.
    pub kind: Kind,
    /// The server that it belongs to.
    pub server: String,
    /// Of method, name or URI, and arguments.
    pub digest: String,
    /// Unix milliseconds after which it is void.
    pub expires: u64,
}

/// The key of the seals; the same over restarts, so that an old state is known as one of ours.
#[derive(Clone)]
pub struct Sealer(ChaCha20Poly1305);

/// The form of a state.
const VERSION: &str = "1.";

impl Sealer {
    /// With a secret key.
    pub fn new(key: &[u8; 32]) -> Self {
        Self(ChaCha20Poly1305::new(&Key::from(*key)))
    }

    /// Seals a state; `nonce` must never be used twice.
    pub fn seal(&self, state: &State, nonce: [u8; 12]) -> String {
        let plain = serde_json::to_vec(state).expect("a state has no maps with odd keys");
        let sealed = self.0.encrypt(&Nonce::from(nonce), plain.as_slice()).expect("a state is short");
        let mut bytes = nonce.to_vec();
        bytes.extend(sealed);
        format!("{VERSION}{}", data_encoding::BASE64URL_NOPAD.encode(&bytes))
    }

    /// Opens a state; `None` if it is not one of ours, or was touched.
    pub fn open(&self, text: &str) -> Option<State> {
        let bytes = data_encoding::BASE64URL_NOPAD.decode(text.strip_prefix(VERSION)?.as_bytes()).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(12)?;
        let nonce: [u8; 12] = nonce.try_into().ok()?;
        serde_json::from_slice(&self.0.decrypt(&Nonce::from(nonce), sealed).ok()?).ok()
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_touched_or_foreign_state_does_not_open() {
        let state = State {
            kind: Kind::Parked { id: 7, round: 1, outcome: None },
            server: "wiki".into(),
            digest: "d".into(),
            expires: 5,
        };
        let sealer = Sealer::new(&[1; 32]);
        let text = sealer.seal(&state, [9; 12]);
        assert_eq!(sealer.open(&text), Some(state));
        assert_eq!(Sealer::new(&[2; 32]).open(&text), None);
        let mut touched = text.clone().into_bytes();
        let last = touched.len() - 2;
        touched[last] = if touched[last] == b'A' { b'B' } else { b'A' };
        assert_eq!(sealer.open(std::str::from_utf8(&touched).unwrap()), None);
        for junk in ["", "1.", "1.AAAA", "2.x", "nonsense"] {
            assert_eq!(sealer.open(junk), None, "{junk}");
        }
    }
}
