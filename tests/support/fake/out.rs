//! Standard output, and what can be wrong with it.

use std::io::Write as _;
use std::sync::Mutex;

use crate::flags::Flags;

/// The one writer.
pub(crate) struct Out {
    first: Mutex<bool>,
    one_byte: bool,
    crlf: bool,
    bom: bool,
    bom_all: bool,
}

// === impl Out ===

impl Out {
    pub(crate) fn new(flags: &Flags) -> Self {
        Self {
            first: Mutex::new(true),
            one_byte: flags.has("one_byte"),
            crlf: flags.has("crlf"),
            bom: flags.has("bom"),
            bom_all: flags.has("bom_all"),
        }
    }

    /// Writes one message and its line end as one unit.
    pub(crate) fn line(&self, message: &str) {
        let mut bytes = Vec::with_capacity(message.len() + 5);
        let mut first = self.first.lock().expect("no holder of this lock panics");
        if self.bom_all || (self.bom && *first) {
            bytes.extend_from_slice(b"\xef\xbb\xbf");
        }
        *first = false;
        bytes.extend_from_slice(message.as_bytes());
        bytes.extend_from_slice(if self.crlf { b"\r\n" } else { b"\n" });
        self.write(&bytes);
    }

    /// Writes bytes as they are.
    pub(crate) fn raw(&self, bytes: &[u8]) {
        let _unit = self.first.lock().expect("no holder of this lock panics");
        self.write(bytes);
    }

    /// A reader that went away is no fault of ours: errors are dropped.
    fn write(&self, bytes: &[u8]) {
        let mut stdout = std::io::stdout().lock();
        if self.one_byte {
            for byte in bytes {
                let _ = stdout.write_all(std::slice::from_ref(byte));
                let _ = stdout.flush();
            }
        } else {
            let _ = stdout.write_all(bytes);
            let _ = stdout.flush();
        }
    }
}

/// Lines that are no message: `KIND`, or the text itself for any other word.
pub(crate) fn noise(kind: &str) -> Vec<u8> {
    match kind {
        "text" => b"Server is starting, please wait\n".to_vec(),
        "brokenjson" => b"{not json\n".to_vec(),
        "halfjson" => b"{\"jsonrpc\":\"2.0\",\"id\":1,\"resu\n".to_vec(),
        "number" => b"42\n".to_vec(),
        "string" => b"\"hello\"\n".to_vec(),
        "empty" => b"\n".to_vec(),
        "blank" => b"  \t \r\n".to_vec(),
        "object" => b"{\"level\":30,\"msg\":\"listening\"}\n".to_vec(),
        "array" => b"[1,2,3]\n".to_vec(),
        "emptyarray" => b"[]\n".to_vec(),
        "null" => b"null\n".to_vec(),
        "nullid" => {
            b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"Parse error\"}}\n".to_vec()
        }
        "strayid" => b"{\"jsonrpc\":\"2.0\",\"id\":987654321,\"result\":{}}\n".to_vec(),
        "fractionid" => b"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"result\":{}}\n".to_vec(),
        "bom" => b"\xef\xbb\xbf".to_vec(),
        "crlf" => b"a line\r\n".to_vec(),
        "utf8" => {
            b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"\xff\xfe\"}}\n".to_vec()
        }
        "nul" => b"\0\0\0\n".to_vec(),
        "ansi" => b"\x1b[32mready\x1b[0m\n".to_vec(),
        "long" => [vec![b'x'; 1 << 20], b"\n".to_vec()].concat(),
        "deep" => [vec![b'['; 100_000], b"\n".to_vec()].concat(),
        "hugeid" => {
            let id = "9".repeat(10_000);
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n").into_bytes()
        }
        text => format!("{text}\n").into_bytes(),
    }
}
