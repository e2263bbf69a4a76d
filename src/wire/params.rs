//! The places in the parameters of a request that a proxy looks at (`PROTOCOL.md` chapter 3).

use std::borrow::Cow;
use std::ops::Range;

use super::id::PeerId;
use super::json;

/// Where the known members of `params` stand. Found in one walk over its top level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// The object as a whole; `None`: absent.
    pub whole: Option<Range<usize>>,
    /// `name` of a tool or prompt.
    pub name: Option<Range<usize>>,
    /// `uri` of a resource.
    pub uri: Option<Range<usize>>,
    /// `arguments`.
    pub arguments: Option<Range<usize>>,
    /// `ref` of a completion.
    pub reference: Option<Range<usize>>,
    /// `context` of a completion, with its key.
    pub context: Option<json::Member>,
    /// `cursor`.
    pub cursor: Option<Range<usize>>,
    /// `task`.
    pub task: Option<Range<usize>>,
    /// `taskId`.
    pub task_id: Option<Range<usize>>,
    /// `level`.
    pub level: Option<Range<usize>>,
    /// `requestId` of a cancellation.
    pub request_id: Option<Range<usize>>,
    /// `progressToken` of a progress notification.
    pub progress_token: Option<Range<usize>>,
    /// `_meta`.
    pub meta: Option<Range<usize>>,
}

/// What a walk can say of the parameters as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoObject;

impl Params {
    /// Walks `params`.
    ///
    /// # Errors
    /// They are there and no object.
    pub fn read(text: &[u8], params: Option<Range<usize>>) -> Result<Self, NoObject> {
        let mut found = Self::default();
        let Some(whole) = params else { return Ok(found) };
        if &text[whole.clone()] == b"null" {
            return Ok(found);
        }
        if !json::is_object(text, &whole) {
            return Err(NoObject);
        }
        found.whole = Some(whole.clone());
        for member in json::members(text, whole) {
            let Some(key) = json::string(text, member.key.clone()) else { continue };
            let value = member.value.clone();
            match &*key {
                "name" => found.name = Some(value),
                "uri" => found.uri = Some(value),
                "arguments" => found.arguments = Some(value),
                "ref" => found.reference = Some(value),
                "context" => found.context = Some(member),
                "cursor" => found.cursor = Some(value),
                "task" => found.task = Some(value),
                "taskId" => found.task_id = Some(value),
                "level" => found.level = Some(value),
                "requestId" => found.request_id = Some(value),
                "progressToken" => found.progress_token = Some(value),
                "_meta" => found.meta = Some(value),
                _ => {}
            }
        }
        Ok(found)
    }

    /// `_meta.progressToken`: its place, and the token if it is a lawful one.
    pub fn token(&self, text: &[u8]) -> Option<(Range<usize>, PeerId)> {
        let at = json::get(text, self.meta.clone()?, "progressToken")?;
        let token = PeerId::from_token(&text[at.clone()])?;
        Some((at, token))
    }

    /// The task id in `_meta` that relates a message to a task.
    pub fn related_task(&self, text: &[u8]) -> Option<Range<usize>> {
        json::path(text, self.meta.clone()?, &["io.modelcontextprotocol/related-task", "taskId"])
    }
}

/// The string that a place spells.
pub fn text_at<'a>(text: &'a [u8], at: Option<&Range<usize>>) -> Option<Cow<'a, str>> {
    json::string(text, at?.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_one_walk() {
        let text = br#"{"name":"a","x":{"name":"no"},"arguments":{"uri":1},"_meta":{"progressToken":"t","k":[]}}"#;
        let params = Params::read(text, Some(0..text.len())).unwrap();
        assert_eq!(text_at(text, params.name.as_ref()).as_deref(), Some("a"));
        assert_eq!(params.uri, None);
        assert_eq!(&text[params.arguments.clone().unwrap()], br#"{"uri":1}"#);
        assert_eq!(params.token(text).unwrap().1.raw(), "\"t\"");
        assert_eq!(Params::read(b"[]", Some(0..2)), Err(NoObject));
        assert_eq!(Params::read(b"null", Some(0..4)), Ok(Params::default()));
    }
}
