//! A notes server: a small MCP server to try the proxy with, and to read.
//!
//! Notes live in memory, for as long as the process does. It shows tools (annotations, structured results, errors), a
//! prompt with arguments and their completion, resources that can be watched, a list that changes, and the three
//! things that a server may ask its host for: a form (elicitation), a model (sampling) and folders (roots).
#![expect(deprecated, reason = "sampling, roots and plain subscriptions are what today's hosts speak")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use rmcp::handler::server::wrapper::{Json, Parameters};
use rmcp::model::{
    CallToolResult, CompleteRequestParams, CompleteResult, CompletionInfo, ContentBlock, CreateMessageRequestParams,
    Implementation, ListResourceTemplatesResult, ListResourcesResult, PaginatedRequestParams, PromptMessage,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Reference, Resource, ResourceContents,
    ResourceTemplate, ResourceUpdatedNotificationParam, Role, SamplingMessage, ServerCapabilities, ServerConfig,
    SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::{ElicitationError, RequestContext};
use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler, ServiceExt, elicit_safe, prompt, prompt_handler, prompt_router, tool,
    tool_handler, tool_router,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// All notes by their number, and who watches which.
#[derive(Default)]
struct Store {
    notes: BTreeMap<u32, Note>,
    last: u32,
    watched: BTreeSet<String>,
}

/// One note.
#[derive(Clone, Serialize, JsonSchema)]
struct Note {
    /// Its number; the resource is `note:///NUMBER`.
    id: u32,
    title: String,
    text: String,
    tags: Vec<String>,
}

/// The server.
#[derive(Clone)]
struct Notes {
    store: Arc<Mutex<Store>>,
}

#[derive(Deserialize, JsonSchema)]
struct NewNote {
    /// One line.
    title: String,
    /// The note itself.
    text: String,
    /// Words to find it by.
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Edit {
    /// The number of the note.
    id: u32,
    /// What is added at its end, on a line of its own.
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct ById {
    /// The number of the note.
    id: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Query {
    /// Text to look for in titles, texts and tags; all notes if empty.
    #[serde(default)]
    text: String,
}

/// What a search found.
#[derive(Serialize, JsonSchema)]
struct Found {
    count: usize,
    notes: Vec<Note>,
}

#[derive(Deserialize, JsonSchema)]
struct Removal {
    /// The number of the note.
    id: u32,
    /// Do it without asking the person.
    #[serde(default)]
    sure: bool,
}

/// The form that a person sees before a note is removed.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Confirmation {
    /// Remove it for good?
    remove: bool,
}
elicit_safe!(Confirmation);

#[derive(Serialize, Deserialize, JsonSchema)]
struct Review {
    /// A tag that is in use.
    tag: String,
    /// How to write: `brief` or `thorough`.
    style: Option<String>,
}

// === impl Notes: tools ===

#[tool_router]
impl Notes {
    fn new() -> Self {
        let notes = Self { store: Arc::default() };
        notes.insert(NewNote {
            title: "Welcome".into(),
            text: "Notes live as long as this server.".into(),
            tags: vec!["hello".into()],
        });
        notes
    }

    #[tool(description = "Writes a new note.", annotations(title = "New note", destructive_hint = false))]
    async fn add_note(&self, Parameters(new): Parameters<NewNote>, peer: Peer<RoleServer>) -> Json<Note> {
        let note = self.insert(new);
        // The host may have gone; then nobody misses the news.
        let _ = peer.notify_resource_list_changed().await;
        Json(note)
    }

    #[tool(description = "Adds text to a note.", annotations(title = "Append", destructive_hint = false))]
    async fn append_to_note(
        &self,
        Parameters(edit): Parameters<Edit>,
        peer: Peer<RoleServer>,
    ) -> Result<Json<Note>, ErrorData> {
        let (note, watched) = {
            let mut store = self.store();
            let note = store.notes.get_mut(&edit.id).ok_or_else(|| no_note(edit.id))?;
            note.text = format!("{}\n{}", note.text, edit.text);
            let note = note.clone();
            let watched = store.watched.contains(&uri(edit.id));
            (note, watched)
        };
        if watched {
            let _ = peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri(edit.id))).await;
        }
        Ok(Json(note))
    }

    #[tool(description = "Finds notes by their words.", annotations(title = "Search", read_only_hint = true))]
    async fn search_notes(&self, Parameters(query): Parameters<Query>) -> Json<Found> {
        let wanted = query.text.to_lowercase();
        let notes: Vec<Note> = self.store().notes.values().filter(|note| note.mentions(&wanted)).cloned().collect();
        Json(Found { count: notes.len(), notes })
    }

    #[tool(
        description = "Removes a note. Asks the person first, where the host can.",
        annotations(title = "Remove", destructive_hint = true, idempotent_hint = true)
    )]
    async fn remove_note(
        &self,
        Parameters(removal): Parameters<Removal>,
        peer: Peer<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let title = self.note(removal.id)?.title;
        if !removal.sure {
            match peer.elicit::<Confirmation>(format!("Remove the note “{title}”?")).await {
                Ok(Some(Confirmation { remove: true })) => {}
                Ok(_) | Err(ElicitationError::UserDeclined | ElicitationError::UserCancelled) => {
                    return Ok(said("The note stays: the person did not agree."));
                }
                Err(_) => {
                    return Ok(failed("This host can't ask. Call again with `sure` if the person wants it gone."));
                }
            }
        }
        self.store().notes.remove(&removal.id);
        let _ = peer.notify_resource_list_changed().await;
        Ok(said(&format!("“{title}” is gone.")))
    }

    #[tool(description = "Lets the host's model sum a note up.", annotations(title = "Sum up", read_only_hint = true))]
    async fn sum_up_note(
        &self,
        Parameters(ById { id }): Parameters<ById>,
        peer: Peer<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let note = self.note(id)?;
        let question = CreateMessageRequestParams::new(
            vec![SamplingMessage::user_text(format!("Sum up in one sentence:\n\n{}", note.text))],
            200,
        )
        .with_system_prompt("You write short, plain sentences.");
        let Ok(answer) = peer.create_message(question).await else {
            return Ok(failed("This host lends no model. Read the note and sum it up yourself."));
        };
        let text = answer.message.content.first().and_then(|block| block.as_text()).map(|text| text.text.clone());
        Ok(said(&text.unwrap_or_else(|| "The model wrote nothing.".into())))
    }

    #[tool(description = "Makes one note for each folder that the host has open.", annotations(title = "From folders"))]
    async fn note_folders(&self, peer: Peer<RoleServer>) -> CallToolResult {
        let Ok(answer) = peer.list_roots().await else {
            return failed("This host tells no folders.");
        };
        for root in &answer.roots {
            let title = root.name.clone().unwrap_or_else(|| root.uri.clone());
            self.insert(NewNote { title, text: root.uri.clone(), tags: vec!["folder".into()] });
        }
        let _ = peer.notify_resource_list_changed().await;
        said(&format!("{} notes written.", answer.roots.len()))
    }

    #[tool(description = "Gives a note as a link that the host can open.", annotations(read_only_hint = true))]
    async fn link_to_note(&self, Parameters(ById { id }): Parameters<ById>) -> Result<CallToolResult, ErrorData> {
        let note = self.note(id)?;
        Ok(CallToolResult::success(vec![ContentBlock::resource_link(note.resource())]))
    }
}

// === impl Notes: prompts ===

#[prompt_router]
impl Notes {
    #[prompt(name = "review_notes", description = "Goes through the notes of one tag.")]
    async fn review_notes(&self, Parameters(review): Parameters<Review>) -> Vec<PromptMessage> {
        let style = review.style.as_deref().unwrap_or("brief");
        let request = format!("Write a {style} review of these notes on “{}”.", review.tag);
        let store = self.store();
        let tagged = store.notes.values().filter(|note| note.tags.contains(&review.tag));
        let notes = tagged.map(|note| PromptMessage::new_text(Role::User, format!("# {}\n{}", note.title, note.text)));
        std::iter::once(PromptMessage::new_text(Role::User, request)).chain(notes).collect()
    }
}

// === impl Notes: the rest of the protocol ===

#[tool_handler]
#[prompt_handler(router = Self::prompt_router())]
impl ServerHandler for Notes {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_completions()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("notes", env!("CARGO_PKG_VERSION")))
            .with_instructions("Search before you write: a note on the subject may exist.")
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let store = self.store();
        let all: BTreeSet<String> = match (&request.r#ref, request.argument.name.as_str()) {
            (Reference::Prompt(_), "tag") => store.notes.values().flat_map(|note| note.tags.clone()).collect(),
            (Reference::Prompt(_), "style") => ["brief".to_owned(), "thorough".to_owned()].into(),
            (Reference::Resource(_), "id") => store.notes.keys().map(u32::to_string).collect(),
            _ => BTreeSet::new(),
        };
        let fitting = all.into_iter().filter(|value| value.starts_with(&request.argument.value));
        let values = CompletionInfo::new(fitting.take(CompletionInfo::MAX_VALUES).collect())
            .map_err(|error| ErrorData::internal_error(error, None))?;
        Ok(CompleteResult::new(values))
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(self.store().notes.values().map(Note::resource).collect()))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new("note:///{id}", "note")
            .with_description("A note by its number.")
            .with_mime_type("text/markdown");
        Ok(ListResourceTemplatesResult::with_all_items(vec![template]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let id = request.uri.strip_prefix("note:///").and_then(|id| id.parse().ok());
        let note = id.and_then(|id| self.store().notes.get(&id).cloned()).ok_or_else(|| {
            ErrorData::resource_not_found("there is no such note", Some(json!({ "uri": request.uri })))
        })?;
        let text = ResourceContents::text(format!("# {}\n\n{}", note.title, note.text), request.uri)
            .with_mime_type("text/markdown");
        Ok(ReadResourceResult::new(vec![text]).into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.store().watched.insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.store().watched.remove(&request.uri);
        Ok(())
    }
}

// === impl Notes: the store ===

impl Notes {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("nobody panics while holding the store")
    }

    fn insert(&self, new: NewNote) -> Note {
        let mut store = self.store();
        store.last += 1;
        let note = Note { id: store.last, title: new.title, text: new.text, tags: new.tags };
        store.notes.insert(note.id, note.clone());
        note
    }

    fn note(&self, id: u32) -> Result<Note, ErrorData> {
        self.store().notes.get(&id).cloned().ok_or_else(|| no_note(id))
    }
}

// === impl Note ===

impl Note {
    fn mentions(&self, text: &str) -> bool {
        let words = [&self.title, &self.text].into_iter().chain(&self.tags);
        words.into_iter().any(|word| word.to_lowercase().contains(text))
    }

    fn resource(&self) -> Resource {
        Resource::new(uri(self.id), self.title.clone()).with_mime_type("text/markdown")
    }
}

fn uri(id: u32) -> String {
    format!("note:///{id}")
}

fn no_note(id: u32) -> ErrorData {
    ErrorData::invalid_params(format!("there is no note {id}; search_notes lists them"), None)
}

fn said(text: &str) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn failed(text: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let server = Notes::new().serve(rmcp::transport::stdio()).await?;
    server.waiting().await?;
    Ok(())
}
