//! Checked values, and the getters that lift them.

use std::ops::Range;
use std::time::Duration;

use super::types::Text;

/// A checked value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    Integer(i64),
    Duration(Duration),
    Size(u64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
    Table(Fields),
}

/// A checked value with its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) span: Range<usize>,
    /// Where its key stands; empty for an entry of a list.
    pub(crate) key_span: Range<usize>,
}

/// The checked values of a table; what is not set, or faulty, is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(pub(crate) Vec<(&'static str, Node)>);

// === impl Node ===

impl Node {
    pub(crate) fn as_table(&self) -> Option<&Fields> {
        match &self.value {
            Value::Table(fields) => Some(fields),
            _ => None,
        }
    }
}

// === impl Fields ===

impl Fields {
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        self.0.iter().find(|(key, _)| *key == name).map(|(_, node)| node)
    }

    /// Lays these values over others: tables and maps are merged, everything else replaces what is below.
    pub(crate) fn over(self, below: Self) -> Self {
        let mut merged = below;
        for (name, node) in self.0 {
            match merged.0.iter_mut().find(|(key, _)| *key == name) {
                Some((_, under)) => {
                    let old = std::mem::replace(&mut under.value, Value::Bool(false));
                    *under = Node { value: node.value.over(old), ..node };
                }
                None => merged.0.push((name, node)),
            }
        }
        merged
    }
}

/// Getters: those without `set_` are for keys with a default.
impl Fields {
    pub(crate) fn take(&mut self, name: &str) -> Option<Node> {
        let at = self.0.iter().position(|(key, _)| *key == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Takes a table out; an empty one where it isn't set.
    pub(crate) fn take_table(&mut self, name: &str) -> Self {
        match self.take(name) {
            Some(Node { value: Value::Table(fields), .. }) => fields,
            _ => Self::default(),
        }
    }

    /// Takes the entries of a map out; none where it isn't set.
    pub(crate) fn take_map(&mut self, name: &str) -> Vec<(String, Node)> {
        match self.take(name) {
            Some(Node { value: Value::Map(entries), .. }) => entries,
            _ => Vec::new(),
        }
    }

    /// A value that is set or has a default: the table of keys says which, and a test sets every key.
    pub(crate) fn expect(&self, name: &str) -> &Node {
        self.get(name).unwrap_or_else(|| panic!("the key {name:?} has a default in the table of keys"))
    }

    pub(crate) fn bool(&self, name: &str) -> bool {
        self.expect(name).value == Value::Bool(true)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.expect(name);
        self.set_text(name).unwrap_or_default()
    }

    pub(crate) fn set_text(&self, name: &str) -> Option<String> {
        match &self.get(name)?.value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    pub(crate) fn integer<N: TryFrom<i64> + Default>(&self, name: &str) -> N {
        match self.expect(name).value {
            Value::Integer(number) => N::try_from(number).unwrap_or_default(),
            _ => N::default(),
        }
    }

    pub(crate) fn size(&self, name: &str) -> usize {
        match self.expect(name).value {
            Value::Size(size) => usize::try_from(size).unwrap_or(usize::MAX),
            _ => 0,
        }
    }

    pub(crate) fn duration(&self, name: &str) -> Duration {
        self.expect(name);
        self.set_duration(name).unwrap_or_default()
    }

    pub(crate) fn set_duration(&self, name: &str) -> Option<Duration> {
        match self.get(name)?.value {
            Value::Duration(duration) => Some(duration),
            _ => None,
        }
    }

    pub(crate) fn texts(&self, name: &str) -> Option<Vec<String>> {
        let Value::List(nodes) = &self.get(name)?.value else { return None };
        let text = |node: &Node| match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        Some(nodes.iter().filter_map(text).collect())
    }

    pub(crate) fn table(&self, name: &str) -> &Fields {
        self.expect(name).as_table().expect("the kind of this key is a table")
    }

    pub(crate) fn map_of_text(&self, name: &str) -> Vec<(String, Text)> {
        self.map_if_set(name).into_iter().map(|(name, text)| (name, Text(text))).collect()
    }

    pub(crate) fn map_if_set(&self, name: &str) -> Vec<(String, String)> {
        let text = |(name, node): (Option<String>, &Node)| match &node.value {
            Value::Text(text) => Some((name?, text.clone())),
            _ => None,
        };
        self.entries(name).into_iter().filter_map(text).collect()
    }

    /// The entries of a list or a map, those of a map with their names.
    pub(crate) fn entries(&self, name: &str) -> Vec<(Option<String>, &Node)> {
        match self.get(name).map(|node| &node.value) {
            Some(Value::List(nodes)) => nodes.iter().map(|node| (None, node)).collect(),
            Some(Value::Map(nodes)) => nodes.iter().map(|(name, node)| (Some(name.clone()), node)).collect(),
            _ => Vec::new(),
        }
    }
}

// === impl Value ===

impl Value {
    fn over(self, below: Self) -> Self {
        match (self, below) {
            (Self::Table(fields), Self::Table(below)) => Self::Table(fields.over(below)),
            (Self::Map(entries), Self::Map(mut below)) => {
                below.retain(|(name, _)| entries.iter().all(|(own, _)| own != name));
                below.extend(entries);
                Self::Map(below)
            }
            (value, _) => value,
        }
    }
}
