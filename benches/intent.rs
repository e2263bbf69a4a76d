//! What an intent and its settlement cost on the message thread: microseconds for one small call.
//! Budget: 3.
//!
//! Of some rounds the best counts: what else runs on the machine only adds. Where the system tells it, the time on the
//! processor is given instead of the time on the wall.

use std::hint::black_box;
use std::time::Instant;

use mcp_proxy::engine::outcome::{Intent, UnixMs};
use mcp_proxy::runtime::inflight::Intents;

const CALLS: u32 = 100_000;
const ROUNDS: usize = 7;

fn main() {
    let dir = std::env::temp_dir().join(format!("mcp-proxy-bench-{}", std::process::id()));
    let mut on_disk = Intents::open(&dir, UnixMs(0)).expect("the temporary directory can be written to");
    let file = measure(&mut on_disk);
    let memory = measure(&mut Intents::disabled());
    drop(on_disk);
    let _ = std::fs::remove_dir_all(&dir);
    #[expect(clippy::print_stdout, reason = "the result of the measurement")]
    {
        println!("intent and settlement: {file:.2} µs a call (without the file: {memory:.2} µs)");
    }
}

/// Nanoseconds that this thread was on the processor, or that have passed since `start`.
fn elapsed(start: Instant) -> u64 {
    let on_processor = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let on_processor = on_processor.and_then(|text| text.split(' ').next()?.parse().ok());
    on_processor.unwrap_or_else(|| u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// The best of some rounds, in microseconds a call.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of seconds fit")]
fn measure(intents: &mut Intents) -> f64 {
    let arguments = r#"{"title":"A small call","labels":["one","two"],"number":42,"draft":false}"#;
    let start = Instant::now();
    let round = || {
        let before = elapsed(start);
        for sequence in 0..CALLS {
            let id = intents.fresh_id();
            let intent = Intent {
                id,
                time: UnixMs(1_800_000_000_000),
                server: "tracker",
                tool: "create_issue",
                exposed: "tracker__create_issue",
                host_request_id: "1234",
                generation: 1,
                sequence: u64::from(sequence),
                digest: None,
                arguments: Some(arguments),
                repeat_of: None,
            };
            intents.begin(black_box(&intent), None).expect("the record is written");
            intents.settle(black_box(id)).expect("the record is written");
        }
        (elapsed(start) - before) as f64 / f64::from(CALLS) / 1000.0
    };
    std::iter::repeat_with(round).take(ROUNDS).fold(f64::INFINITY, f64::min)
}
