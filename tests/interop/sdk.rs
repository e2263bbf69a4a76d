//! `rmcp` on both sides: its client starts the proxy, and behind it are the examples, which are built on its server.
#![expect(deprecated, reason = "sampling, roots and plain subscriptions are what today's hosts speak")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult,
    ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData, GetPromptRequestParams, Implementation,
    ListRootsResult, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam,
    ReadResourceRequestParams, ResourceUpdatedNotificationParam, Root, SamplingMessage, SetLevelRequestParams,
    SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::{Map, Value, json};

use crate::place::Place;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A host that lends a model, folders and a person who says yes.
#[derive(Clone, Default)]
pub(crate) struct Host {
    heard: Arc<Mutex<Vec<(&'static str, Value)>>>,
}

impl Host {
    fn hear(&self, what: &'static str, value: impl serde::Serialize) {
        self.heard.lock().unwrap().push((what, serde_json::to_value(value).unwrap()));
    }

    pub(crate) fn heard(&self, what: &str) -> Vec<Value> {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|(kind, _)| *kind == what).map(|(_, value)| value.clone()).collect()
    }

    pub(crate) async fn until(&self, what: &str, count: usize) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let heard = self.heard(what);
            if heard.len() >= count {
                return heard;
            }
            assert!(Instant::now() < deadline, "{what}: {heard:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl ClientHandler for Host {
    async fn create_message(
        &self,
        asked: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.hear("sampling", asked);
        Ok(CreateMessageResult::new(SamplingMessage::assistant_text("In short."), "a-model".into()))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new("file:///work/one"), Root::new("file:///work/two")]))
    }

    async fn create_elicitation(
        &self,
        asked: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.hear("elicitation", asked);
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "remove": true })))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.hear("progress", params);
    }

    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        self.hear("log", params);
    }

    async fn on_resource_updated(&self, params: ResourceUpdatedNotificationParam, _: NotificationContext<RoleClient>) {
        self.hear("updated", params.uri);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.hear("tools changed", ());
    }

    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_roots().enable_sampling().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("interop", "1"))
    }
}

pub(crate) type Session = RunningService<RoleClient, Host>;

async fn connect(place: &Place) -> Session {
    let transport = TokioChildProcess::new(tokio::process::Command::from(place.proxy())).unwrap();
    Host::default().serve(transport).await.unwrap()
}

fn arguments(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

pub(crate) async fn call(session: &Session, name: &'static str, args: Value) -> Value {
    let params = CallToolRequestParams::new(name).with_arguments(arguments(args));
    serde_json::to_value(session.call_tool(params).await.unwrap()).unwrap()
}

pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

pub(crate) async fn tools(session: &Session) -> Vec<String> {
    session.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name.into_owned()).collect()
}

#[tokio::test]
async fn rmcp_sees_both_servers_as_one() {
    let place = Place::of_examples();
    let session = connect(&place).await;

    let names = tools(&session).await;
    let both: Vec<&str> = names.iter().map(|name| name.split_once("__").unwrap().0).collect();
    assert_eq!(both, [["notes"; 7].as_slice(), ["clock"; 4].as_slice()].concat(), "{names:?}");
    let prompts = session.list_all_prompts().await.unwrap();
    let prompts: Vec<&str> = prompts.iter().map(|prompt| prompt.name.as_str()).collect();
    assert_eq!(prompts, ["notes__review_notes", "clock__find_meeting"]);
    let resources = session.list_all_resources().await.unwrap();
    let uris: Vec<&str> = resources.iter().map(|resource| resource.uri.as_str()).collect();
    assert!(uris.starts_with(&["notes+note:///1", "clock+clock://now", "clock+clock://zones"]), "{uris:?}");
    let templates = session.list_all_resource_templates().await.unwrap();
    let templates: Vec<&str> = templates.iter().map(|template| template.uri_template.as_str()).collect();
    assert_eq!(templates, ["notes+note:///{id}", "clock+clock://zone/{zone}"]);

    let told = call(&session, "clock__convert", json!({ "time": "08:00", "from": "Lima", "to": "Tokyo" })).await;
    assert_eq!(told["structuredContent"], json!({ "zone": "Tokyo", "time": "22:00:00", "day": 0 }));
    let found = call(&session, "notes__search_notes", json!({ "text": "hello" })).await;
    assert_eq!(found["structuredContent"]["count"], 1);

    let zone = ReadResourceRequestParams::new("clock+clock://zones");
    let zone = serde_json::to_value(session.read_resource(zone).await.unwrap()).unwrap();
    assert_eq!(zone["contents"][0]["uri"], "clock+clock://zones");
    let prompt = GetPromptRequestParams::new("clock__find_meeting")
        .with_arguments(arguments(json!({ "here": "Lima", "there": "Dakar" })));
    let prompt = serde_json::to_value(session.get_prompt(prompt).await.unwrap()).unwrap();
    assert_eq!(prompt["messages"][1]["content"]["resource"]["uri"], "clock+clock://zones", "{prompt}");
    assert_eq!(session.complete_prompt_simple("clock__find_meeting", "here", "na").await.unwrap(), ["Nairobi"]);
    assert_eq!(session.complete_resource_simple("notes+note:///{id}", "id", "").await.unwrap(), ["1"]);
    session.cancel().await.unwrap();
}

#[tokio::test]
async fn rmcp_servers_reach_the_person_the_model_and_the_folders() {
    let place = Place::of_examples();
    let session = connect(&place).await;
    let host = session.service().clone();

    let summary = call(&session, "notes__sum_up_note", json!({ "id": 1 })).await;
    assert_eq!(text(&summary), "In short.");
    assert_eq!(host.heard("sampling")[0]["systemPrompt"], "You write short, plain sentences.");
    let folders = call(&session, "notes__note_folders", json!({})).await;
    assert_eq!(text(&folders), "2 notes written.");
    let removed = call(&session, "notes__remove_note", json!({ "id": 1 })).await;
    assert_eq!(text(&removed), "“Welcome” is gone.");
    assert_eq!(host.heard("elicitation")[0]["message"], "[notes] Remove the note “Welcome”?");
    let link = call(&session, "notes__link_to_note", json!({ "id": 2 })).await;
    assert_eq!(link["content"][0]["uri"], "notes+note:///2");
    session.cancel().await.unwrap();
}

#[tokio::test]
async fn rmcp_hears_progress_logs_updates_and_changes() {
    let place = Place::of_examples();
    let session = connect(&place).await;
    let host = session.service().clone();

    session.set_level(SetLevelRequestParams::new(LoggingLevel::Info)).await.unwrap();
    let over = call(&session, "clock__countdown", json!({ "seconds": 1 })).await;
    assert_eq!(text(&over), "1 s are over.");
    let progress = host.until("progress", 1).await;
    assert_eq!((&progress[0]["progress"], &progress[0]["total"]), (&json!(1.0), &json!(1.0)));
    let logs = host.until("log", 1).await;
    assert_eq!((&logs[0]["data"], &logs[0]["logger"]), (&json!("a countdown is over"), &json!("clock/clock")));

    session.subscribe(SubscribeRequestParams::new("notes+note:///1")).await.unwrap();
    call(&session, "notes__append_to_note", json!({ "id": 1, "text": "More." })).await;
    assert_eq!(host.until("updated", 1).await[0], "notes+note:///1");
    session.unsubscribe(UnsubscribeRequestParams::new("notes+note:///1")).await.unwrap();

    assert!(!tools(&session).await.contains(&"clock__stop_stopwatch".to_owned()));
    call(&session, "clock__start_stopwatch", json!({})).await;
    host.until("tools changed", 1).await;
    let deadline = Instant::now() + PATIENCE;
    while !tools(&session).await.contains(&"clock__stop_stopwatch".to_owned()) {
        assert!(Instant::now() < deadline, "the tool never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    session.cancel().await.unwrap();
}
