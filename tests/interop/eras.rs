//! `rmcp` on both sides in both eras: a host and servers that each speak one, and the proxy between them.

use rmcp::ServiceExt as _;
use rmcp::model::{ProtocolVersion, ServerNotification, SubscriptionFilter};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _};
use rmcp::transport::TokioChildProcess;
use serde_json::{Value, json};

use crate::place::{Place, example};
use crate::sdk::{Host, Session, call, text, tools};

/// Both examples, spoken to in that era.
fn place(protocol: &str) -> Place {
    let server = |name: &str| {
        let command = example(name).display().to_string();
        format!("[servers.{name}]\ncommand = {command:?}\nprotocol = {protocol:?}\n")
    };
    Place::new(&(server("notes") + &server("clock")))
}

async fn connect(place: &Place, modern: bool) -> Session {
    let transport = TokioChildProcess::new(tokio::process::Command::from(place.proxy())).unwrap();
    if !modern {
        return Host::default().serve(transport).await.unwrap();
    }
    let lifecycle = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    Host::default().serve_with_lifecycle(transport, lifecycle).await.unwrap()
}

/// What every pair must see.
async fn check_common(session: &Session) {
    let names = tools(session).await;
    let both: Vec<&str> = names.iter().map(|name| name.split_once("__").unwrap().0).collect();
    assert_eq!(both, [["notes"; 7].as_slice(), ["clock"; 4].as_slice()].concat(), "{names:?}");
    let told = call(session, "clock__convert", json!({ "time": "08:00", "from": "Lima", "to": "Tokyo" })).await;
    assert_eq!(told["structuredContent"], json!({ "zone": "Tokyo", "time": "22:00:00", "day": 0 }));
    assert_eq!(session.complete_prompt_simple("clock__find_meeting", "here", "na").await.unwrap(), ["Nairobi"]);
    let over = call(session, "clock__countdown", json!({ "seconds": 1 })).await;
    assert_eq!(text(&over), "1 s are over.");
    let progress = session.service().until("progress", 1).await;
    assert_eq!((&progress[0]["progress"], &progress[0]["total"]), (&json!(1.0), &json!(1.0)));
}

/// A server of the handshake's era asks the model, the folders and the person.
async fn check_questions(session: &Session) {
    let host = session.service().clone();
    assert_eq!(text(&call(session, "notes__sum_up_note", json!({ "id": 1 })).await), "In short.");
    assert_eq!(host.heard("sampling")[0]["systemPrompt"], "You write short, plain sentences.");
    assert_eq!(text(&call(session, "notes__note_folders", json!({})).await), "2 notes written.");
    assert_eq!(text(&call(session, "notes__remove_note", json!({ "id": 1 })).await), "“Welcome” is gone.");
    assert_eq!(host.heard("elicitation")[0]["message"], "[notes] Remove the note “Welcome”?");
}

/// A modern host watches a resource.
async fn check_stream(session: &Session) {
    let filter = SubscriptionFilter::builder().resource_subscriptions(["notes+note:///1"]).build();
    let mut stream = session.listen(filter).await.unwrap();
    call(session, "notes__append_to_note", json!({ "id": 1, "text": "More." })).await;
    let told = stream.next().await.unwrap().expect("the stream is open");
    let ServerNotification::ResourceUpdatedNotification(updated) = told else { panic!("{told:?}") };
    assert_eq!(updated.params.uri, "notes+note:///1");
    stream.cancel().await.unwrap();
}

fn revision(session: &Session) -> Value {
    serde_json::to_value(session.peer_info().unwrap()).unwrap()["protocolVersion"].clone()
}

#[tokio::test]
async fn a_modern_host_uses_legacy_servers() {
    let place = place("legacy");
    let session = connect(&place, true).await;
    assert_eq!(revision(&session), "2026-07-28");
    check_common(&session).await;
    check_stream(&session).await;
    check_questions(&session).await;
    session.cancel().await.unwrap();
}

#[tokio::test]
async fn a_modern_host_uses_modern_servers() {
    let place = place("modern");
    let session = connect(&place, true).await;
    check_common(&session).await;
    // These servers have no streams in that era, and nothing else is claimed of them.
    let filter = SubscriptionFilter::builder().resource_subscriptions(["notes+note:///1"]).build();
    let mut stream = session.listen(filter).await.unwrap();
    assert_eq!(stream.acknowledged().resource_subscriptions, None);
    stream.cancel().await.unwrap();
    session.cancel().await.unwrap();
}

#[tokio::test]
async fn a_legacy_host_uses_modern_servers() {
    let place = place("modern");
    let session = connect(&place, false).await;
    assert_eq!(revision(&session), "2025-11-25");
    check_common(&session).await;
    session.cancel().await.unwrap();
}

#[tokio::test]
async fn a_legacy_host_uses_legacy_servers() {
    let place = place("legacy");
    let session = connect(&place, false).await;
    check_common(&session).await;
    check_questions(&session).await;
    session.cancel().await.unwrap();
}
