//! Edits of JSON and JSONC that keep comments, order and layout.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use serde_json::Value;

use super::plan::Field;
use super::read::{parse_json, place_of, split_bom};

/// Writes an entry: a new one whole, of an existing one only the essential keys.
pub(super) fn set(
    text: &str,
    options: &ParseOptions,
    keys: &[&str],
    name: &str,
    fields: &[Field],
) -> Result<String, String> {
    edit(text, options, |root| {
        let mut table = root.object_value_or_create().ok_or("its top is not an object")?;
        for key in keys {
            table = table.object_value_or_create(key).ok_or_else(|| format!("`{key}` in it is not an object"))?;
        }
        let Some(property) = table.get(name) else {
            let fields = fields.iter().map(|field| (field.key.clone(), input(&field.value))).collect();
            table.append(name, CstInputValue::Object(fields));
            return Ok(());
        };
        let entry = property.object_value().ok_or_else(|| format!("`{name}` in it is not an object"))?;
        for field in fields.iter().filter(|field| field.essential) {
            match entry.get(&field.key) {
                // The same value in another layout is the person's, or the host's own.
                Some(property) if says(&property, &field.value, options) => {}
                Some(property) => property.set_value(input(&field.value)),
                None => drop(entry.append(&field.key, input(&field.value))),
            }
        }
        Ok(())
    })
}

/// Removes entries.
pub(super) fn remove(text: &str, options: &ParseOptions, keys: &[&str], names: &[String]) -> Result<String, String> {
    edit(text, options, |root| {
        let table = keys.iter().try_fold(root.object_value(), |table, key| Some(table?.object_value(key))).flatten();
        let Some(table) = table else { return Ok(()) };
        for name in names {
            remove_property(&table, name);
        }
        Ok(())
    })
}

fn remove_property(table: &CstObject, name: &str) {
    if let Some(property) = table.get(name) {
        property.remove();
    }
}

/// Whether a property has this value, however it is laid out.
fn says(property: &CstObjectProp, value: &Value, options: &ParseOptions) -> bool {
    let text = property.value().map(|own| own.to_string());
    text.and_then(|text| parse_json(&text, options).ok()?).as_ref() == Some(value)
}

fn edit(
    text: &str,
    options: &ParseOptions,
    change: impl FnOnce(&CstRootNode) -> Result<(), String>,
) -> Result<String, String> {
    let (bom, text) = split_bom(text);
    let root = CstRootNode::parse(text, options).map_err(|error| place_of(&error))?;
    change(&root)?;
    Ok(format!("{bom}{root}"))
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(truth) => CstInputValue::Bool(*truth),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(map) => {
            CstInputValue::Object(map.iter().map(|(key, value)| (key.clone(), input(value))).collect())
        }
    }
}
