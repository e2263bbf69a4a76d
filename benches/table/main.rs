//! The table of `docs/performance.md`: the proxy beside a byte relay and beside no proxy at all, in one run.
//!
//! `cargo bench --bench table` measures everything; `-- --help` tells the options. One binary plays all parts but the
//! proxy: it starts itself again as the relay and as the servers, and all processes share one core.

#![cfg_attr(
    unix,
    expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts and times here are far below 2^52, and never negative"
    )
)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command that prints its result")]

#[cfg(unix)]
mod cases;
#[cfg(unix)]
mod client;
#[cfg(unix)]
mod eras;
#[cfg(unix)]
mod facts;
#[cfg(unix)]
mod lines;
#[cfg(unix)]
mod load;
#[cfg(unix)]
mod probe;
#[cfg(unix)]
mod relay;
#[cfg(unix)]
mod report;
#[cfg(unix)]
mod rig;
#[cfg(unix)]
mod server;
#[cfg(unix)]
mod watched;

#[cfg(unix)]
fn main() -> anyhow::Result<()> {
    run::main()
}

#[cfg(not(unix))]
fn main() {
    eprintln!("this bench measures pipes of Unix only");
}

#[cfg(unix)]
mod run {
    use std::path::PathBuf;

    use anyhow::Context as _;
    use clap::{Parser, ValueEnum};

    use crate::report::Report;
    use crate::rig::{Rig, Via};
    use crate::{cases, facts, probe, relay, server};

    /// Measures the proxy beside a byte relay and beside no proxy at all.
    #[derive(Debug, Parser)]
    #[command(name = "table")]
    struct Args {
        /// Few calls, small sizes, one round: shows that everything runs, within a minute
        #[arg(long)]
        quick: bool,
        /// Only the rows whose key begins with one of these, separated by commas
        #[arg(long, value_delimiter = ',')]
        rows: Vec<String>,
        /// Rounds; the table shows medians over them
        #[arg(long)]
        rounds: Option<usize>,
        /// Writes the result as JSON
        #[arg(long)]
        json: Option<PathBuf>,
        /// Writes the result as a Markdown table
        #[arg(long)]
        markdown: Option<PathBuf>,
        /// The proxy to measure, in place of the one that was built with the bench
        #[arg(long)]
        proxy: Option<PathBuf>,
        /// Lists the keys of the rows
        #[arg(long)]
        keys: bool,
        /// The core that all processes share; the last one if not given
        #[arg(long)]
        core: Option<usize>,
        /// What this process is
        #[arg(long, hide = true, value_enum, default_value_t = Mode::Table)]
        mode: Mode,
        #[command(flatten)]
        server: server::Options,
        /// The command behind the relay
        #[arg(last = true, hide = true)]
        command: Vec<String>,
        /// Cargo says this to every bench
        #[arg(long, hide = true)]
        bench: bool,
    }

    #[derive(Clone, Copy, Debug, ValueEnum)]
    enum Mode {
        Table,
        Relay,
        RelayTwo,
        Server,
    }

    pub(crate) fn main() -> anyhow::Result<()> {
        let args = Args::parse();
        match args.mode {
            Mode::Server => server::run(&args.server),
            Mode::Relay => relay::one(&args.command),
            Mode::RelayTwo => relay::two(&args.command),
            Mode::Table => table(&args),
        }
    }

    fn table(args: &Args) -> anyhow::Result<()> {
        let cases = cases::all(args.quick);
        if args.keys {
            for case in &cases {
                println!("{}", case.key);
            }
            return Ok(());
        }
        let core = probe::pin(args.core);
        let proxy = args.proxy.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_mcp-proxy")));
        let rounds = args.rounds.unwrap_or(if args.quick { 1 } else { 5 });
        let rig = Rig::new(proxy)?;
        let mut report = Report::new(facts::gather(core, rounds, rig.proxy_version()));
        let mut vias = vec![Via::Direct, Via::Relay];
        match rig.proxy_answers() {
            Ok(()) => vias.push(Via::Proxy),
            Err(error) => eprintln!("the proxy is left out, for it does not answer: {error:#}"),
        }
        for case in cases {
            if !args.rows.is_empty() && !args.rows.iter().any(|key| case.key.starts_with(key.as_str())) {
                continue;
            }
            eprint!("{:<24}", case.key);
            report.begin(&case);
            for round in 0..rounds {
                // Each round begins with another one, so that no one profits from its place.
                for turn in 0..vias.len() {
                    let via = vias[(round + turn) % vias.len()];
                    match (case.measure)(&rig, via) {
                        Ok(Some(values)) => report.add(via, &values),
                        Ok(None) => {}
                        Err(error) => {
                            eprintln!("\n{} over {via:?}: {error:#}", case.key);
                            report.fail(via, &error);
                        }
                    }
                }
                eprint!(".");
            }
            eprintln!();
        }
        report.end();
        print!("{}", report.text());
        if let Some(path) = &args.json {
            std::fs::write(path, report.json()?).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(path) = &args.markdown {
            std::fs::write(path, report.markdown()).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}
