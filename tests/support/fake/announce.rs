//! News of changes: plain after a handshake, per subscription in 2026-07-28.

use serde_json::{Value, json};

use crate::modern;
use crate::server::Server;

// === impl Server ===

impl Server {
    /// Announces that a list changed, to whoever is to know.
    pub(crate) fn changed(&self, kind: &str) {
        self.announce(&format!("notifications/{kind}/list_changed"), "", |wanted| {
            wanted[format!("{kind}ListChanged")] == true
        });
    }

    /// Announces that a resource was updated.
    pub(crate) fn updated(&self, uri: &str) {
        self.announce("notifications/resources/updated", &format!(r#""uri":{}"#, json!(uri)), |wanted| {
            wanted["resourceSubscriptions"].as_array().is_some_and(|uris| uris.iter().any(|other| other == uri))
        });
    }

    /// Announces a task of 2026-07-28's extension to the subscriptions that name it.
    pub(crate) fn task_changed(&self, id: &str, task: &str) {
        let members = task.strip_prefix('{').and_then(|task| task.strip_suffix('}')).unwrap_or_default();
        self.announce_to_listens("notifications/tasks", members, |wanted| {
            wanted["taskIds"].as_array().is_some_and(|ids| ids.iter().any(|other| other == id))
        });
    }

    /// Sends a notification plainly after a handshake, and once for each subscription that wants it.
    fn announce(&self, method: &str, params: &str, wants: impl Fn(&Value) -> bool) {
        if self.state().opening.is_some() {
            let params = (!params.is_empty()).then(|| format!("{{{params}}}"));
            self.notify(method, params.as_deref());
        }
        self.announce_to_listens(method, params, wants);
    }

    fn announce_to_listens(&self, method: &str, params: &str, wants: impl Fn(&Value) -> bool) {
        let ids: Vec<String> = {
            let state = self.state();
            state.listens.iter().filter(|(_, wanted)| wants(wanted)).map(|(id, _)| id.clone()).collect()
        };
        let comma = if params.is_empty() { "" } else { "," };
        for id in ids {
            self.notify(method, Some(&format!(r#"{{"_meta":{}{comma}{params}}}"#, modern::subscription(&id))));
        }
    }
}
