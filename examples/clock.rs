//! A clock server: a small MCP server to try the proxy with, and to read.
//!
//! It shows what takes time and what changes: a countdown with progress that can be cancelled, log messages at the
//! level that the host chose, a resource that ticks while somebody watches it, a tool that comes and goes with its
//! use, and prompt and template arguments that complete. Zones are fixed offsets from UTC.
#![expect(deprecated, reason = "logging and plain subscriptions are what today's hosts speak")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::{Json, Parameters};
use rmcp::model::{
    CallToolResult, CompleteRequestParams, CompleteResult, CompletionInfo, ContentBlock, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, LoggingLevel, LoggingMessageNotificationParam,
    PaginatedRequestParams, ProgressNotificationParam, PromptMessage, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, Resource, ResourceContents, ResourceTemplate, ResourceUpdatedNotificationParam, Role,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::RequestContext;
use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler, ServiceExt, prompt, prompt_handler, prompt_router, tool, tool_handler,
    tool_router,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Zone names and their minutes east of UTC, all year round.
const ZONES: [(&str, i32); 9] = [
    ("Azores", -60),
    ("Colombo", 330),
    ("Dakar", 0),
    ("Honolulu", -600),
    ("Kathmandu", 345),
    ("Lima", -300),
    ("Nairobi", 180),
    ("Tokyo", 540),
    ("UTC", 0),
];

/// The resource that ticks.
const NOW: &str = "clock://now";

/// The server.
#[derive(Clone, Default)]
struct Clock {
    state: Arc<Mutex<State>>,
}

/// What changes.
#[derive(Default)]
struct State {
    level: Option<LoggingLevel>,
    stopwatch: Option<Instant>,
    watched: BTreeSet<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Zone {
    /// A zone of `clock://zones`; UTC if absent.
    zone: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Conversion {
    /// Hours and minutes as `HH:MM`.
    time: String,
    /// The zone that it is meant in.
    from: String,
    /// The zone to tell it in.
    to: String,
}

/// A time of day in a zone.
#[derive(Serialize, JsonSchema)]
struct Reading {
    zone: String,
    /// Hours, minutes and seconds as `HH:MM:SS`.
    time: String,
    /// Days from the day asked for: -1, 0 or 1.
    day: i64,
}

#[derive(Deserialize, JsonSchema)]
struct Countdown {
    /// How long, at most an hour.
    #[schemars(range(min = 1, max = 3600))]
    seconds: u32,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Meeting {
    /// Where the first person is.
    here: String,
    /// Where the other one is.
    there: String,
}

// === impl Clock: tools ===

#[tool_router]
impl Clock {
    #[tool(description = "Tells the time in a zone.", annotations(title = "Now", read_only_hint = true))]
    async fn now(&self, Parameters(Zone { zone }): Parameters<Zone>) -> Result<Json<Reading>, ErrorData> {
        let zone = zone.unwrap_or_else(|| "UTC".into());
        let offset = offset(&zone)?;
        Ok(Json(time(zone, seconds_of_day() + offset * 60)))
    }

    #[tool(
        description = "Tells a time of one zone in another.",
        annotations(title = "Convert", read_only_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn convert(&self, Parameters(asked): Parameters<Conversion>) -> Result<Json<Reading>, ErrorData> {
        let minutes = minutes(&asked.time).ok_or_else(|| {
            ErrorData::invalid_params("`time` must look like 17:45", Some(json!({"time": asked.time})))
        })?;
        let utc = minutes - offset(&asked.from)?;
        let there = utc + offset(&asked.to)?;
        Ok(Json(time(asked.to, there * 60)))
    }

    /// Waits and tells how far it is; ends at once when the host cancels it.
    #[tool(
        description = "Counts down, with progress every second.",
        annotations(title = "Countdown", destructive_hint = false)
    )]
    async fn countdown(
        &self,
        Parameters(Countdown { seconds }): Parameters<Countdown>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        if !(1..=3600).contains(&seconds) {
            return Err(ErrorData::invalid_params("`seconds` must be from 1 to 3600", None));
        }
        for passed in 1..=seconds {
            tokio::select! {
                () = context.ct.cancelled() => {
                    self.log(&context.peer, LoggingLevel::Notice, "a countdown was cancelled").await;
                    return Ok(failed("The countdown was cancelled."));
                }
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            if let Some(token) = context.meta.get_progress_token() {
                let progress = ProgressNotificationParam::new(token, f64::from(passed))
                    .with_total(f64::from(seconds))
                    .with_message(format!("{} s left", seconds - passed));
                let _ = context.peer.notify_progress(progress).await;
            }
        }
        self.log(&context.peer, LoggingLevel::Info, "a countdown is over").await;
        Ok(said(&format!("{seconds} s are over.")))
    }

    #[tool(description = "Starts the stopwatch anew.", annotations(title = "Start", destructive_hint = false))]
    async fn start_stopwatch(&self, peer: Peer<RoleServer>) -> CallToolResult {
        let first = self.state().stopwatch.replace(Instant::now()).is_none();
        if first {
            // From now on there is one tool more: `stop_stopwatch`.
            let _ = peer.notify_tool_list_changed().await;
        }
        said("It runs.")
    }

    #[tool(description = "Stops the stopwatch and tells what it shows.", annotations(title = "Stop"))]
    async fn stop_stopwatch(&self, peer: Peer<RoleServer>) -> CallToolResult {
        let Some(started) = self.state().stopwatch.take() else {
            return failed("It does not run; start_stopwatch starts it.");
        };
        let _ = peer.notify_tool_list_changed().await;
        said(&format!("{:.1} s", started.elapsed().as_secs_f64()))
    }

    /// The tools of this moment: a stopwatch that stands can't be stopped.
    fn tools(&self) -> ToolRouter<Self> {
        let mut tools = Self::tool_router();
        if self.state().stopwatch.is_none() {
            tools.disable_route("stop_stopwatch");
        }
        tools
    }
}

// === impl Clock: prompts ===

#[prompt_router]
impl Clock {
    #[prompt(name = "find_meeting", description = "Finds hours in which two people are both awake.")]
    async fn find_meeting(&self, Parameters(meeting): Parameters<Meeting>) -> Result<Vec<PromptMessage>, ErrorData> {
        let apart = offset(&meeting.there)? - offset(&meeting.here)?;
        let text = format!(
            "I am in {}, the other person is in {} ({:+.2} h). Propose three hours between 8:00 and 20:00 for both.",
            meeting.here,
            meeting.there,
            f64::from(i32::try_from(apart).unwrap_or_default()) / 60.0
        );
        let zones = ResourceContents::text(zones(), "clock://zones").with_mime_type("text/plain");
        Ok(vec![
            PromptMessage::new_text(Role::User, text),
            PromptMessage::new(Role::User, ContentBlock::resource(zones)),
        ])
    }
}

// === impl Clock: the rest of the protocol ===

#[tool_handler(router = self.tools())]
#[prompt_handler(router = Self::prompt_router())]
impl ServerHandler for Clock {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_completions()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_resources()
            .enable_resources_subscribe()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("clock", env!("CARGO_PKG_VERSION")))
            .with_instructions("Zones are fixed offsets without summer time; clock://zones lists them.")
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.state().level = Some(request.level);
        Ok(())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let typed = request.argument.value.to_lowercase();
        let names = ZONES.iter().map(|(name, _)| (*name).to_owned());
        let fitting = names.filter(|name| name.to_lowercase().starts_with(&typed));
        let values = CompletionInfo::new(fitting.collect()).map_err(|error| ErrorData::internal_error(error, None))?;
        Ok(CompleteResult::new(values))
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(vec![
            Resource::new(NOW, "now").with_description("The time in UTC; watch it.").with_mime_type("text/plain"),
            Resource::new("clock://zones", "zones").with_mime_type("text/plain"),
        ]))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new("clock://zone/{zone}", "zone").with_description("The time in a zone.");
        Ok(ListResourceTemplatesResult::with_all_items(vec![template]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let text = match request.uri.strip_prefix("clock://") {
            Some("now") => time("UTC".into(), seconds_of_day()).time,
            Some("zones") => zones(),
            Some(rest) if rest.starts_with("zone/") => {
                let zone = &rest["zone/".len()..];
                time(zone.into(), seconds_of_day() + offset(zone)? * 60).time
            }
            _ => {
                let data = Some(json!({ "uri": request.uri }));
                return Err(ErrorData::resource_not_found("there is no such clock", data));
            }
        };
        Ok(ReadResourceResult::new(vec![ResourceContents::text(text, request.uri).with_mime_type("text/plain")]).into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let first = self.state().watched.insert(request.uri.clone());
        if first && request.uri == NOW {
            let clock = self.clone();
            #[expect(clippy::disallowed_methods, reason = "it ends by itself when nobody watches")]
            tokio::spawn(async move { clock.tick(context.peer).await });
        }
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.state().watched.remove(&request.uri);
        Ok(())
    }
}

// === impl Clock ===

impl Clock {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding the state")
    }

    /// Announces the time every second, until nobody watches or the host is gone.
    async fn tick(&self, peer: Peer<RoleServer>) {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let watched = self.state().watched.contains(NOW);
            if !watched || peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(NOW)).await.is_err() {
                return;
            }
        }
    }

    /// Tells the host something, if it wants to hear of this level.
    async fn log(&self, peer: &Peer<RoleServer>, level: LoggingLevel, text: &str) {
        let wanted = self.state().level.is_some_and(|least| level as u8 >= least as u8);
        if wanted {
            let message = LoggingMessageNotificationParam::new(level, json!(text)).with_logger("clock");
            let _ = peer.notify_logging_message(message).await;
        }
    }
}

/// Minutes east of UTC.
fn offset(zone: &str) -> Result<i64, ErrorData> {
    let found = ZONES.iter().find(|(name, _)| name.eq_ignore_ascii_case(zone));
    found
        .map(|(_, minutes)| i64::from(*minutes))
        .ok_or_else(|| ErrorData::invalid_params(format!("there is no zone {zone:?}; clock://zones lists them"), None))
}

fn zones() -> String {
    let lines = ZONES.iter().map(|(name, minutes)| {
        let sign = if *minutes < 0 { '-' } else { '+' };
        format!("{name} {sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Minutes of a time such as `17:45`.
fn minutes(text: &str) -> Option<i64> {
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    ((0..24).contains(&hours) && (0..60).contains(&minutes)).then_some(hours * 60 + minutes)
}

/// Seconds since midnight, in UTC.
fn seconds_of_day() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs() % 86_400).unwrap_or_default()
}

/// A time of day from seconds that may lie a day off.
fn time(zone: String, seconds: i64) -> Reading {
    let (day, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let time = format!("{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60);
    Reading { zone, time, day }
}

fn said(text: &str) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn failed(text: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let server = Clock::default().serve(rmcp::transport::stdio()).await?;
    server.waiting().await?;
    Ok(())
}
