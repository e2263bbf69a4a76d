//! How much of each server's affairs is logged: a filter around the log's own that looks at the field `server`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Filter};

use crate::config::{LogLevel, Server};

/// The levels of the servers that have one of their own; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Levels(Arc<ArcSwap<BTreeMap<String, LevelFilter>>>);

/// The log's filter, in which a server's own level counts for the lines about it.
#[derive(Debug)]
pub struct ByServer {
    base: EnvFilter,
    levels: Levels,
    mode: Mode,
}

/// What a server's own level does to the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It takes its place.
    Instead,
    /// It can only let more through.
    OrMore,
}

// === impl Levels ===

impl Levels {
    /// Takes over what the configuration says.
    pub fn set(&self, servers: &[Server]) {
        let own = |server: &Server| Some((server.key.clone(), filter_of(server.log_level?)));
        let new: BTreeMap<_, _> = servers.iter().filter_map(own).collect();
        if **self.0.load() != new {
            self.0.store(Arc::new(new));
            // What each place in the code was told of the old ones.
            tracing::callsite::rebuild_interest_cache();
        }
    }

    fn most(&self) -> LevelFilter {
        self.0.load().values().copied().max().unwrap_or(LevelFilter::OFF)
    }
}

fn filter_of(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

// === impl ByServer ===

impl ByServer {
    /// A filter of these parts.
    pub fn new(base: EnvFilter, levels: Levels, mode: Mode) -> Self {
        Self { base, levels, mode }
    }
}

fn is_about_a_server(meta: &Metadata<'_>) -> bool {
    !meta.is_span() && meta.fields().field("server").is_some()
}

impl<S: tracing::Subscriber> Filter<S> for ByServer {
    fn enabled(&self, meta: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        Filter::<S>::enabled(&self.base, meta, context)
            || (is_about_a_server(meta) && *meta.level() <= self.levels.most())
    }

    fn callsite_enabled(&self, meta: &'static Metadata<'static>) -> Interest {
        if is_about_a_server(meta) && !self.levels.0.load().is_empty() {
            return Interest::sometimes();
        }
        Filter::<S>::callsite_enabled(&self.base, meta)
    }

    /// Whose line it is shows only here.
    fn event_enabled(&self, event: &Event<'_>, context: &Context<'_, S>) -> bool {
        let meta = event.metadata();
        let levels = self.levels.0.load();
        if levels.is_empty() || !is_about_a_server(meta) {
            return true;
        }
        let mut whose = Whose(String::new());
        event.record(&mut whose);
        let by_base = || Filter::<S>::enabled(&self.base, meta, context);
        match levels.get(&whose.0) {
            Some(own) => meta.level() <= own || (self.mode == Mode::OrMore && by_base()),
            None => by_base(),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(Filter::<S>::max_level_hint(&self.base)?.max(self.levels.most()))
    }
}

/// The field `server` of an event.
struct Whose(String);

impl Visit for Whose {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "server" {
            self.0 = format!("{value:?}");
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "server" {
            value.clone_into(&mut self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

    use super::*;
    use crate::runtime::lines::Keep;
    use crate::runtime::shelf::Shelf;

    fn levels(own: &[(&str, LevelFilter)]) -> Levels {
        let levels = Levels::default();
        levels.0.store(Arc::new(own.iter().map(|(key, level)| ((*key).to_owned(), *level)).collect()));
        levels
    }

    /// What gets through, as `server level`.
    fn through(base: &str, own: &[(&str, LevelFilter)], mode: Mode) -> Vec<String> {
        let shelf = Shelf::new();
        let filter = ByServer::new(EnvFilter::new(base), levels(own), mode);
        let subscriber = tracing_subscriber::registry().with(Keep::new(shelf.clone()).with_filter(filter));
        tracing::subscriber::with_default(subscriber, || {
            for key in ["loud", "quiet", "other"] {
                tracing::debug!(server = key, "d");
                tracing::info!(server = %key, "i");
                tracing::info!(target: "mcp_proxy::stderr", server = key, "said");
                tracing::warn!(server = ?std::ffi::OsStr::new(key), "another's spelling");
                tracing::error!(server = key, "e");
            }
            tracing::debug!("d");
            tracing::info!("i");
        });
        let lines = shelf.lines().after(0, None, 100);
        lines.iter().map(|line| format!("{} {}", line.server, line.level.to_lowercase())).collect()
    }

    #[test]
    fn a_server_s_own_level_counts_for_its_lines_alone() {
        let own = [("loud", LevelFilter::DEBUG), ("quiet", LevelFilter::ERROR)];
        let expected = [
            "loud debug",
            "loud info",
            "loud info",
            "loud error",
            "quiet error",
            "other info",
            "other info",
            "other error",
            " info",
        ];
        let told = through("info", &own, Mode::Instead);
        assert_eq!(told.iter().filter(|line| !line.contains("warn")).collect::<Vec<_>>(), expected);
        let told = through("warn,mcp_proxy::stderr=info", &[("quiet", LevelFilter::OFF)], Mode::Instead);
        assert!(told.iter().all(|line| !line.starts_with("quiet ")), "{told:?}");
        assert!(told.contains(&"other info".to_owned()), "{told:?}");
        assert_eq!(through("info", &[], Mode::Instead).len(), 13);
    }

    #[test]
    fn what_is_kept_for_a_look_back_is_never_less() {
        let own = [("loud", LevelFilter::DEBUG), ("quiet", LevelFilter::OFF)];
        let told = through("info", &own, Mode::OrMore);
        assert_eq!(told.iter().filter(|line| line.starts_with("quiet ")).count(), 3, "{told:?}");
        assert!(told.contains(&"loud debug".to_owned()) && !told.contains(&"other debug".to_owned()), "{told:?}");
    }
}
