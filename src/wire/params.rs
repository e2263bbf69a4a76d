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
        for member in json::members(text, whole.clone()) {
            found.note(text, member);
        }
        found.whole = Some(whole);
        Ok(found)
    }

    /// Reads the object at `at` into an empty one, and checks its grammar; tells where it ends.
    ///
    /// # Errors
    /// As [`json::skip_value`].
    pub fn check(&mut self, text: &[u8], at: usize) -> Result<usize, json::Syntax> {
        let end = json::skip_object(text, at, |key, value| {
            let end = json::skip_value(text, value)?;
            self.note(text, json::Member { key, value: value..end });
            Ok(end)
        })?;
        self.whole = Some(at..end);
        Ok(end)
    }

    fn note(&mut self, text: &[u8], member: json::Member) {
        let plain = &text[member.key.start + 1..member.key.end - 1];
        let decoded = memchr::memchr(b'\\', plain).and_then(|_| json::string(text, member.key.clone()));
        let place = match decoded.as_deref().map_or(plain, str::as_bytes) {
            b"name" => &mut self.name,
            b"uri" => &mut self.uri,
            b"arguments" => &mut self.arguments,
            b"ref" => &mut self.reference,
            b"context" => return self.context = Some(member),
            b"cursor" => &mut self.cursor,
            b"task" => &mut self.task,
            b"taskId" => &mut self.task_id,
            b"level" => &mut self.level,
            b"requestId" => &mut self.request_id,
            b"progressToken" => &mut self.progress_token,
            b"_meta" => &mut self.meta,
            _ => return,
        };
        *place = Some(member.value);
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
        let mut checked = Params::default();
        assert_eq!(checked.check(text, 0), Ok(text.len()));
        assert_eq!(checked, params);
        assert!(Params::default().check(br#"{"name":"a",}"#, 0).is_err());
        assert_eq!(Params::read(b"[]", Some(0..2)), Err(NoObject));
        assert_eq!(Params::read(b"null", Some(0..4)), Ok(Params::default()));
    }
}
