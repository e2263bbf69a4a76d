//! Lines of the proxy.

use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;

/// A line of the proxy.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) raw: String,
}

// === impl Message ===

impl Message {
    /// A member of the message, raw.
    pub(crate) fn raw_member(&self, key: &str) -> Option<String> {
        raw_member(&self.raw, key)
    }

    pub(crate) fn method(&self) -> String {
        self.raw_member("method").and_then(|token| serde_json::from_str(&token).ok()).unwrap_or_default()
    }

    /// The whole message; numbers that fit no double are not for this.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.raw).unwrap()
    }

    pub(crate) fn params(&self) -> Value {
        self.value()["params"].clone()
    }

    #[track_caller]
    pub(crate) fn raw_result(&self) -> String {
        self.raw_member("result").unwrap_or_else(|| panic!("no result: {}", self.raw))
    }

    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        serde_json::from_str(&self.raw_result()).unwrap()
    }

    /// The error, which must have this code.
    #[track_caller]
    pub(crate) fn error(&self, code: i64) -> Value {
        let error = self.raw_member("error").unwrap_or_else(|| panic!("no error: {}", self.raw));
        let error: Value = serde_json::from_str(&error).unwrap();
        assert_eq!(error["code"], code, "{error:#}");
        error
    }

    /// The text of the first block of a result.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        self.texts().into_iter().next().unwrap_or_else(|| panic!("no text: {}", self.raw))
    }

    /// The texts of all blocks of a result, whatever else is in it.
    #[track_caller]
    pub(crate) fn texts(&self) -> Vec<String> {
        let content = raw_member(&self.raw_result(), "content").unwrap_or_else(|| panic!("no content: {}", self.raw));
        let blocks: Vec<&RawValue> = serde_json::from_str(&content).unwrap();
        blocks
            .iter()
            .filter_map(|block| raw_member(block.get(), "text"))
            .map(|text| serde_json::from_str(&text).unwrap())
            .collect()
    }

    /// The text as JSON.
    #[track_caller]
    pub(crate) fn told(&self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

/// A member of an object, raw.
pub(crate) fn raw_member(object: &str, key: &str) -> Option<String> {
    let members: HashMap<String, &RawValue> = serde_json::from_str(object).ok()?;
    members.get(key).map(|value| value.get().to_owned())
}

/// The elements of an array, raw.
pub(crate) fn raw_elements(array: &str) -> Vec<String> {
    let elements: Vec<&RawValue> = serde_json::from_str(array).unwrap();
    elements.iter().map(|element| element.get().to_owned()).collect()
}
