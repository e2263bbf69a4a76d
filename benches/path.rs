//! The pure parts of the message path, each alone: framing, reading an envelope, splicing.
//!
//! `cargo bench --bench path` prints the best of many short batches: what else runs on the machine makes a batch slower,
//! never faster. `-- --quick` only shows that it runs; any other word chooses by name.

#![expect(clippy::print_stdout, clippy::cast_precision_loss, reason = "a command that prints figures of a few digits")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mcp_proxy::wire::frame::Framer;
use mcp_proxy::wire::outbox::Outbox;
use mcp_proxy::wire::splice::Edit;
use mcp_proxy::wire::{json, message};

/// What stands in a message: each is hard on another part of the reader.
#[derive(Clone, Copy)]
enum Text {
    /// Source code as a file tool returns it: escaped line ends and quotes.
    Code,
    /// A picture in base64: no escape at all.
    Base64,
    /// Many small values and keys: no long string.
    Rows,
    /// Letters of two and three bytes.
    Unicode,
}

const SIZES: [(&str, usize); 3] = [("100B", 100), ("10KiB", 10 * 1024), ("1MiB", 1 << 20)];

fn text(kind: Text, size: usize) -> String {
    let unit = match kind {
        Text::Code => r#"    let answer = lookup(\"name\", &table)?;\n    // And so on.\n"#,
        Text::Base64 => "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        Text::Rows => r#"{"id":17,"name":"a row","tags":["x","y"],"ok":true,"score":0.25},"#,
        Text::Unicode => "Grüße aus Zürich — 東京からこんにちは, ",
    };
    unit.repeat(size.div_ceil(unit.len()).max(1))
}

/// A result of about `size` bytes.
fn result(kind: Text, size: usize) -> Bytes {
    let text = text(kind, size);
    Bytes::from(match kind {
        Text::Rows => {
            let rows = text.trim_end_matches(',');
            format!(
                r#"{{"jsonrpc":"2.0","id":1234,"result":{{"content":[],"structuredContent":{{"rows":[{rows}]}}}}}}"#
            )
        }
        _ => format!(r#"{{"jsonrpc":"2.0","id":1234,"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#),
    })
}

/// How it is measured, and what.
struct Bench {
    quick: bool,
    words: Vec<String>,
}

fn main() {
    let mut bench = Bench { quick: false, words: Vec::new() };
    for word in std::env::args().skip(1) {
        match word.as_str() {
            "--quick" => bench.quick = true,
            _ if word.starts_with('-') => {}
            _ => bench.words.push(word),
        }
    }
    println!("{:<22} {:>12} {:>10}", "part", "ns", "GB/s");
    read(&bench);
    call(&bench);
    frame(&bench);
    splice(&bench);
}

impl Bench {
    /// Measures one part, which handles that many bytes.
    fn part(&self, name: &str, bytes: usize, mut work: impl FnMut()) {
        if !self.words.is_empty() && !self.words.iter().any(|word| name.contains(word.as_str())) {
            return;
        }
        let (batches, time) =
            if self.quick { (1, Duration::from_micros(50)) } else { (400, Duration::from_micros(500)) };
        // The first ones are cold and tell nothing.
        let once = |_| {
            let started = Instant::now();
            work();
            started.elapsed()
        };
        let once = (0..20).map(once).min().unwrap_or_default().max(Duration::from_nanos(20));
        let calls = (time.as_nanos() / once.as_nanos()).clamp(1, 50_000);
        let mut best = f64::MAX;
        for _ in 0..batches {
            let started = Instant::now();
            (0..calls).for_each(|_| work());
            best = best.min(started.elapsed().as_nanos() as f64 / calls as f64);
        }
        println!("{name:<22} {best:>12.1} {:>10.2}", bytes as f64 / best);
    }
}

fn read(bench: &Bench) {
    for (kind, name) in
        [(Text::Code, "code"), (Text::Base64, "base64"), (Text::Rows, "rows"), (Text::Unicode, "unicode")]
    {
        for (label, size) in SIZES {
            let message = result(kind, size);
            bench.part(&format!("read/{name}/{label}"), message.len(), || {
                black_box(message::read(black_box(&message)));
            });
        }
    }
}

fn call(bench: &Bench) {
    let message: &[u8] = br#"{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"files__read_text","arguments":{"path":"src/main.rs","head":40},"_meta":{"progressToken":17}}}"#;
    bench.part("call", message.len(), || {
        let message::Line::One(envelope) = message::read(black_box(message)) else { unreachable!("it is one") };
        let params = envelope.params.clone().expect("it has params");
        let name = json::get(message, params.clone(), "name");
        let token = json::path(message, params, &["_meta", "progressToken"]);
        black_box((envelope.kind(message), name, token));
    });
}

fn frame(bench: &Bench) {
    for (label, size) in SIZES {
        let mut line = result(Text::Code, size).to_vec();
        line.push(b'\n');
        let mut framer = Framer::new(64 << 20);
        bench.part(&format!("frame/{label}"), line.len(), || {
            // As a pipe hands it over: at most 64 KiB at a time.
            for chunk in line.chunks(64 * 1024) {
                framer.room();
                framer.push(chunk);
                while let Some(frame) = framer.next_frame() {
                    black_box(frame);
                }
            }
        });
    }
}

fn splice(bench: &Bench) {
    for (label, size) in SIZES {
        let message = result(Text::Code, size);
        let mut outbox = Outbox::new();
        bench.part(&format!("splice/{label}"), message.len(), || {
            outbox.push_edited(1_u64, &message, &mut [Edit::number(22..26, 987_654)]);
            let bytes = outbox.bytes();
            outbox.accepted(bytes, |tag, count, whole| {
                black_box((tag, count, whole));
            });
        });
    }
}
