//! What an intent and its settlement cost on the message thread: microseconds for one small call. Budget: 3.

use std::hint::black_box;
use std::time::Instant;

use mcp_proxy::engine::outcome::{Digester, Intent, UnixMs, no_mask};
use mcp_proxy::runtime::inflight::Intents;

const CALLS: u32 = 200_000;
const ROUNDS: usize = 5;

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

/// The median of some rounds, in microseconds a call: digest, intent and settlement.
fn measure(intents: &mut Intents) -> f64 {
    let arguments = r#"{"title":"A small call","labels":["one","two"],"number":42,"draft":false}"#;
    let mut digester = Digester::default();
    let mut rounds = [0.0; ROUNDS];
    for round in &mut rounds {
        let start = Instant::now();
        for sequence in 0..CALLS {
            let id = intents.fresh_id();
            let digest = digester.digest("tracker", "create_issue", Some(arguments.as_bytes()));
            let intent = Intent {
                id,
                time: UnixMs(1_800_000_000_000),
                server: "tracker",
                tool: "create_issue",
                exposed: "tracker__create_issue",
                host_request_id: "1234",
                generation: 1,
                sequence: u64::from(sequence),
                digest,
                arguments: Some(arguments),
                repeat_of: None,
            };
            intents.begin(black_box(&intent), &no_mask).expect("the record is written");
            intents.settle(black_box(id)).expect("the record is written");
        }
        *round = start.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS);
    }
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}
