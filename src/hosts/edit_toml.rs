//! Edits of TOML that keep comments, order and layout.

use serde_json::Value;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike};

use super::plan::Field;
use super::read::{from_item, split_bom};

/// Writes an entry: a new one whole, of an existing one only the essential keys.
pub(super) fn set(text: &str, keys: &[&str], name: &str, fields: &[Field]) -> Result<String, String> {
    edit(text, |document| {
        let fresh = document.iter().next().is_none();
        let mut table: &mut dyn TableLike = document.as_table_mut();
        let mut inline = false;
        for key in keys {
            let item = table.entry(key).or_insert_with(|| {
                let mut table = Table::new();
                table.set_implicit(true);
                Item::Table(table)
            });
            inline = item.is_inline_table();
            table = item.as_table_like_mut().ok_or_else(|| format!("`{key}` in it is not a table"))?;
        }
        if let Some(item) = table.get_mut(name) {
            let entry = item.as_table_like_mut().ok_or_else(|| format!("`{name}` in it is not a table"))?;
            for field in fields.iter().filter(|field| field.essential) {
                // The same value in another layout is the person's, or the host's own.
                if entry.get(&field.key).and_then(from_item).as_ref() == Some(&field.value) {
                    continue;
                }
                let decor = entry.get(&field.key).and_then(Item::as_value).map(|value| value.decor().clone());
                let mut value = to_toml(&field.value);
                if let Some(decor) = decor {
                    *value.decor_mut() = decor;
                }
                entry.insert(&field.key, Item::Value(value));
            }
            return Ok(());
        }
        let item = if inline {
            let mut entry = InlineTable::new();
            entry.extend(fields.iter().map(|field| (field.key.as_str(), to_toml(&field.value))));
            Item::Value(entry.into())
        } else {
            let mut entry = Table::new();
            entry.decor_mut().set_prefix(if fresh { "" } else { "\n" });
            entry.extend(fields.iter().map(|field| (field.key.as_str(), Item::Value(to_toml(&field.value)))));
            Item::Table(entry)
        };
        table.insert(name, item);
        Ok(())
    })
}

/// Removes entries.
pub(super) fn remove(text: &str, keys: &[&str], names: &[String]) -> Result<String, String> {
    edit(text, |document| {
        let mut table: &mut dyn TableLike = document.as_table_mut();
        for key in keys {
            let Some(inner) = table.get_mut(key).and_then(Item::as_table_like_mut) else { return Ok(()) };
            table = inner;
        }
        for name in names {
            table.remove(name);
        }
        Ok(())
    })
}

fn edit(text: &str, change: impl FnOnce(&mut DocumentMut) -> Result<(), String>) -> Result<String, String> {
    let (bom, text) = split_bom(text);
    let crlf = text.contains("\r\n");
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| error.message().to_owned())?;
    change(&mut document)?;
    let mut text = document.to_string();
    if crlf && !text.replace("\r\n", "").contains('\r') {
        text = text.replace("\r\n", "\n").replace('\n', "\r\n");
    }
    Ok(format!("{bom}{text}"))
}

fn to_toml(value: &Value) -> toml_edit::Value {
    match value {
        Value::Null => "".into(),
        Value::Bool(truth) => (*truth).into(),
        Value::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64().unwrap_or_default().into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(to_toml).collect::<Array>().into(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.as_str(), to_toml(value))).collect::<InlineTable>().into()
        }
    }
}
