//! Reads the `id` and `method` of a message that is too long to keep, in constant memory (`PROTOCOL.md` 1.4).

/// What could be told of a line that was over the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skimmed {
    /// The token of the top-level `id`.
    pub id: Option<Vec<u8>>,
    /// The token of the top-level `method`, quotes included.
    pub method: Option<Vec<u8>>,
    /// Length of the line in bytes.
    pub length: u64,
}

/// Longest token that is kept; a longer id or method is not told.
const TOKEN_MAX: usize = 4096;

/// The state between two bytes of the line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Skimmer {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// Between a top-level key's colon and the comma behind its value.
    in_value: bool,
    /// The top-level token being read.
    token: Vec<u8>,
    overlong: bool,
    key: Vec<u8>,
    id: Option<Vec<u8>>,
    method: Option<Vec<u8>>,
    length: u64,
}

impl Skimmer {
    /// Takes the next bytes of the line.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        let mut rest = bytes;
        while let Some((&byte, tail)) = rest.split_first() {
            // Inside a nested string nothing matters but its end: skip to it at memory speed.
            if self.in_string && !self.escaped && self.depth > 1 {
                match memchr::memchr2(b'"', b'\\', rest) {
                    Some(at) => {
                        self.in_string = rest[at] != b'"';
                        self.escaped = self.in_string;
                        rest = &rest[at + 1..];
                    }
                    None => return,
                }
                continue;
            }
            self.byte(byte);
            rest = tail;
        }
    }

    /// Ends the line.
    pub fn finish(mut self) -> Skimmed {
        self.member_done();
        Skimmed { id: self.id, method: self.method, length: self.length }
    }

    fn byte(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.depth += 1;
                // A value with an inside is neither an id nor a method.
                self.overlong |= self.depth > 1;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    self.member_done();
                }
            }
            b':' if self.depth == 1 && !self.in_value => {
                self.key = std::mem::take(&mut self.token);
                self.in_value = true;
                self.overlong = false;
            }
            b',' if self.depth == 1 => self.member_done(),
            b' ' | b'\t' | b'\r' => {}
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && !self.overlong {
            if self.token.len() < TOKEN_MAX {
                self.token.push(byte);
            } else {
                self.overlong = true;
                self.token.clear();
            }
        }
    }

    fn member_done(&mut self) {
        let value = std::mem::take(&mut self.token);
        if self.in_value && !self.overlong && !value.is_empty() {
            match self.key.as_slice() {
                b"\"id\"" => self.id = Some(value),
                b"\"method\"" => self.method = Some(value),
                _ => {}
            }
        }
        self.in_value = false;
        self.overlong = false;
        self.key.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_and_method_are_found_wherever_they_stand() {
        let long = "x".repeat(10_000);
        let text = format!(
            r#"{{"params":{{"id":9,"a":"{long}\"","b":[1,{{"method":"no"}}]}}, "id" : "k\"1","x":"{long}","method":"tools/call"}}"#
        );
        for cut in [1, 7, 64, text.len()] {
            let mut skimmer = Skimmer::default();
            text.as_bytes().chunks(cut).for_each(|chunk| skimmer.feed(chunk));
            let told = skimmer.finish();
            assert_eq!(told.id.as_deref(), Some(&br#""k\"1""#[..]), "cut {cut}");
            assert_eq!(told.method.as_deref(), Some(&br#""tools/call""#[..]));
            assert_eq!(told.length, text.len() as u64);
        }
    }

    #[test]
    fn a_cut_line_still_tells_what_it_had() {
        let mut skimmer = Skimmer::default();
        skimmer.feed(br#"{"jsonrpc":"2.0","id":17,"result":{"content":[{"text":"aaaa"#);
        assert_eq!(skimmer.finish().id.as_deref(), Some(&b"17"[..]));
    }
}
