//! What a name or URI stands for, or why it does not appear: `mcp-proxy explain`.

use serde_json::{Value, json};

use super::Hub;
use crate::config::{Rules, Server};
use crate::engine::catalog::{Owner, Part, hiding_rule};
use crate::engine::child::Child;
use crate::engine::listing::Kind;

/// Names that are suggested.
const NEAREST: usize = 5;

impl Hub {
    /// `{name, found: [{kind, server, exposed, original, shown, state, notes}], hints, nearest}`.
    pub fn explain(&self, name: &str) -> Value {
        let mut found = Vec::new();
        for (position, id) in self.order.iter().enumerate() {
            let child = self.child(*id);
            let Some(part) = &child.part else { continue };
            for kind in Kind::ALL {
                self.explain_in(position, child, part, kind, name, &mut found);
            }
        }
        if found.is_empty() {
            found.extend(self.explain_uri(name));
        }
        let hints = if found.is_empty() { self.hints(name) } else { Vec::new() };
        let nearest = if found.is_empty() { self.nearest(name) } else { Vec::new() };
        json!({ "name": name, "found": found, "hints": hints, "nearest": nearest })
    }

    fn explain_in(&self, position: usize, child: &Child, part: &Part, kind: Kind, name: &str, found: &mut Vec<Value>) {
        let is_hidden = |exposed: &str| {
            self.catalog.hidden().any(|(server, of, hidden)| server == position && of == kind && hidden == exposed)
        };
        for entry in part.entries(kind).iter().filter(|entry| entry.exposed == name || entry.original == name) {
            let mut notes = notes_of(&child.config, kind, &entry.original, &entry.exposed);
            if entry.read_only {
                notes.push("it is annotated read-only: a lost call of it is not written down".to_owned());
            }
            let repairs = part.repairs().iter().filter(|repair| repair.kind == kind && repair.name == entry.original);
            notes.extend(repairs.map(|repair| repair.what.to_string()));
            let shown = !is_hidden(&entry.exposed);
            if !shown {
                notes.push(
                    "a server that stands earlier in the file shows the same name, and that one counts".to_owned(),
                );
            }
            found.push(told(child, kind, &entry.exposed, &entry.original, shown, &notes));
        }
        let hits = part.filtered_names(kind).filter(|(exposed, original)| *exposed == name || *original == name);
        for (exposed, original) in hits {
            let mut notes = notes_of(&child.config, kind, original, exposed);
            notes.push(why_hidden(&child.config, kind, original));
            found.push(told(child, kind, exposed, original, false, &notes));
        }
        let left_out = part.repairs().iter().filter(|repair| repair.what.is_left_out() && repair.kind == kind);
        for repair in left_out.filter(|repair| repair.name == name && !name.is_empty()) {
            let notes = [repair.what.to_string()];
            if !found.iter().any(|one| one["original"] == name && one["server"] == child.config.key.as_str()) {
                found.push(told(child, kind, "", name, false, &notes));
            }
        }
    }

    /// A URI that nobody lists, and that still belongs to somebody.
    fn explain_uri(&self, name: &str) -> Option<Value> {
        if !name.contains(':') {
            return None;
        }
        let (position, own, shown) = match self.catalog.resource(name) {
            Owner::One { server, uri } => (server, uri, true),
            Owner::Refused { server, uri } => (server, uri, false),
            Owner::Unknown | Owner::Ambiguous(_) => return None,
        };
        let child = self.child(*self.order.get(position)?);
        let note = if shown {
            "the server does not list it; its prefix or a template of the server says whose it is".to_owned()
        } else {
            why_hidden(&child.config, Kind::Resources, &own)
        };
        Some(told(child, Kind::Resources, name, &own, shown, &[note]))
    }

    fn hints(&self, name: &str) -> Vec<String> {
        let mut hints = Vec::new();
        for child in self.present() {
            let config = &child.config;
            if config.key == name {
                hints.push(format!("\"{name}\" is a server; `mcp-proxy list` shows what it offers"));
            }
            let begins = name.strip_prefix(config.prefix.as_str());
            let begins = begins.is_some_and(|rest| rest.starts_with(&self.config.proxy.separator));
            let renamed = config.tools.rename.iter().any(|(own, new)| own == name || new == name);
            if renamed {
                hints.push(format!(
                    "tools.rename of server \"{}\" names it, but the server lists no such tool",
                    config.key
                ));
            }
            if !config.prefix.is_empty() && (begins || name.starts_with(&format!("{}+", child.scheme))) {
                let what = match child.part {
                    Some(_) => "lists nothing of that name",
                    None => "has not told its lists",
                };
                let why = child.record.last_error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
                let state = child.state_name();
                hints.push(format!("server \"{}\" has that prefix; it is {state} and {what}{why}", config.key));
            }
        }
        for child in self.present().filter(|child| child.part.is_none()) {
            hints.push(format!("the lists of server \"{}\" are not known ({})", child.config.key, child.state_name()));
        }
        for broken in &self.broken {
            hints.push(format!("server \"{}\" was left out: {}", broken.key, broken.reason));
        }
        hints.dedup();
        hints
    }

    fn nearest(&self, name: &str) -> Vec<String> {
        // A name may be wrong in the part that the server gave, behind a prefix that is right.
        let starts = self.present().map(|child| format!("{}{}", child.config.prefix, self.config.proxy.separator));
        let start = starts.filter(|start| name.starts_with(start.as_str())).map(|start| start.len()).max();
        let bare = &name[start.unwrap_or(0)..];
        let parts = self.present().filter_map(|child| child.part.as_deref());
        let names = parts.flat_map(|part| Kind::ALL.into_iter().flat_map(|kind| part.entries(kind)));
        let near = names.filter_map(|entry| {
            let of = |asked: &str, text: &str| strsim::normalized_damerau_levenshtein(asked, text);
            let score = of(name, &entry.exposed).max(of(bare, &entry.original));
            (score > 0.55).then(|| (score, entry.exposed.to_string()))
        });
        let mut near: Vec<_> = near.collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        near.dedup_by(|a, b| a.1 == b.1);
        near.into_iter().take(NEAREST).map(|(_, name)| name).collect()
    }
}

fn told(child: &Child, kind: Kind, exposed: &str, original: &str, shown: bool, notes: &[String]) -> Value {
    json!({
        "kind": kind.noun(),
        "server": child.config.key,
        "state": child.state_name(),
        "exposed": exposed,
        "original": original,
        "shown": shown,
        "notes": notes,
    })
}

/// How the name came to be.
fn notes_of(server: &Server, kind: Kind, original: &str, exposed: &str) -> Vec<String> {
    let mut notes = Vec::new();
    if kind == Kind::Tools {
        if let Some((_, new)) = server.tools.rename.iter().find(|(own, _)| own == original) {
            notes.push(format!("tools.rename gives it the name \"{new}\""));
        }
        if server.tools.describe.iter().any(|(own, _)| own == original) {
            notes.push("tools.describe replaces its description".to_owned());
        }
    }
    let hashed = matches!(kind, Kind::Tools | Kind::Prompts)
        && !exposed.ends_with(original)
        && exposed.rsplit_once('_').is_some_and(|(_, end)| end.len() == 8)
        && !notes.iter().any(|note| note.starts_with("tools.rename"));
    if hashed {
        notes.push("its own name is too long, or has characters that hosts refuse, or could be mistaken for another's: so it ends in a hash".to_owned());
    }
    notes
}

fn why_hidden(server: &Server, kind: Kind, original: &str) -> String {
    let (table, rules): (_, &Rules) = match kind {
        Kind::Tools => ("tools", &server.tools),
        Kind::Prompts => ("prompts", &server.prompts),
        Kind::Resources | Kind::Templates => ("resources", &server.resources),
    };
    match hiding_rule(rules, original) {
        Some((rule, Some(glob))) => format!("hidden by {table}.{rule}: \"{glob}\" matches \"{original}\""),
        Some((rule, None)) => format!("hidden by {table}.{rule}: nothing in it matches \"{original}\""),
        None => "hidden by the configuration's rules".to_owned(),
    }
}
