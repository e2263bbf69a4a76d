//! Revisions and method names (`PROTOCOL.md` 0 and 3).

/// A revision of the protocol, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2024-11-05.
    V2024_11_05,
    /// 2025-03-26: the only one with batches.
    V2025_03_26,
    /// 2025-06-18.
    V2025_06_18,
    /// 2025-11-25: the newest with the handshake.
    V2025_11_25,
    /// 2026-07-28: the first without.
    V2026_07_28,
}

impl Revision {
    /// All that have the handshake, newest first.
    pub const LEGACY: [Self; 4] = [Self::V2025_11_25, Self::V2025_06_18, Self::V2025_03_26, Self::V2024_11_05];
    /// The newest with the handshake.
    pub const NEWEST_LEGACY: Self = Self::V2025_11_25;

    /// Reads a version string.
    pub fn parse(text: &str) -> Option<Self> {
        Self::LEGACY.into_iter().chain([Self::V2026_07_28]).find(|revision| revision.as_str() == text)
    }

    /// The version string.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Whether it has the `initialize` handshake.
    pub fn is_legacy(self) -> bool {
        self <= Self::NEWEST_LEGACY
    }
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A method that we know.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Method {
            $($(#[$doc])* $name,)*
        }

        impl Method {
            /// Reads a method's token, quotes included; `None` for one that we do not know.
            pub fn from_token(token: &[u8]) -> Option<Self> {
                let text = super::json::string(token, 0..token.len())?;
                match &*text {
                    $($text => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its name on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

methods! {
    /// Opens a legacy session.
    Initialize = "initialize",
    /// Asks whether the other side lives; both ways.
    Ping = "ping",
    /// Asks a modern server who it is.
    Discover = "server/discover",
    /// Opens a modern stream of notifications.
    Listen = "subscriptions/listen",
    /// Lists tools.
    ToolsList = "tools/list",
    /// Calls a tool.
    ToolsCall = "tools/call",
    /// Lists prompts.
    PromptsList = "prompts/list",
    /// Gets a prompt.
    PromptsGet = "prompts/get",
    /// Lists resources.
    ResourcesList = "resources/list",
    /// Lists resource templates.
    TemplatesList = "resources/templates/list",
    /// Reads a resource.
    ResourcesRead = "resources/read",
    /// Watches a resource.
    Subscribe = "resources/subscribe",
    /// Stops watching one.
    Unsubscribe = "resources/unsubscribe",
    /// Completes an argument.
    Complete = "completion/complete",
    /// Sets the level of log messages.
    SetLevel = "logging/setLevel",
    /// State of a task; both ways.
    TasksGet = "tasks/get",
    /// Result of a task; both ways.
    TasksResult = "tasks/result",
    /// All tasks; both ways.
    TasksList = "tasks/list",
    /// Cancels a task; both ways.
    TasksCancel = "tasks/cancel",
    /// Answers a modern task's questions.
    TasksUpdate = "tasks/update",
    /// Asks the host for its roots.
    RootsList = "roots/list",
    /// Asks the host's model.
    CreateMessage = "sampling/createMessage",
    /// Asks the person.
    Elicit = "elicitation/create",
    /// A modern stream is open, and what it honours.
    Acknowledged = "notifications/subscriptions/acknowledged",
    /// The handshake is over.
    Initialized = "notifications/initialized",
    /// A request is no longer wanted; both ways.
    Cancelled = "notifications/cancelled",
    /// How far a request has got; both ways.
    Progress = "notifications/progress",
    /// A log message.
    LogMessage = "notifications/message",
    /// The host's roots changed.
    RootsChanged = "notifications/roots/list_changed",
    /// The tools changed.
    ToolsChanged = "notifications/tools/list_changed",
    /// The prompts changed.
    PromptsChanged = "notifications/prompts/list_changed",
    /// The resources or templates changed.
    ResourcesChanged = "notifications/resources/list_changed",
    /// A watched resource changed.
    ResourceUpdated = "notifications/resources/updated",
    /// A URL elicitation is done.
    ElicitationComplete = "notifications/elicitation/complete",
    /// A task's state; both ways.
    TaskStatus = "notifications/tasks/status",
    /// A task's state, on a modern stream.
    TaskNews = "notifications/tasks",
}

/// The names of the log levels, rising.
pub const LOG_LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_revisions_read_back() {
        assert_eq!(Method::from_token(b"\"tools/call\""), Some(Method::ToolsCall));
        assert_eq!(Method::from_token(b"\"tools\\/call\""), Some(Method::ToolsCall));
        assert_eq!(Method::from_token(b"\"tools/cal\""), None);
        assert_eq!(Method::from_token(b"7"), None);
        for revision in Revision::LEGACY {
            assert_eq!(Revision::parse(revision.as_str()), Some(revision));
            assert!(revision.is_legacy());
        }
        assert!(!Revision::V2026_07_28.is_legacy());
    }
}
