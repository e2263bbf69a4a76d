//! Keys that are hashes already, or random: tables take them as they are.

use std::hash::{BuildHasherDefault, Hasher};

/// For tables with such keys.
pub type BuildHashed = BuildHasherDefault<Hashed>;

/// Takes a key that is already a hash.
#[derive(Clone, Debug, Default)]
pub struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
