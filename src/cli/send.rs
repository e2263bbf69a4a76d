//! `mcp-proxy call`, `read`, `prompt`: one request without a host.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::app::Global;
use super::client::{self, Reply, Starts};
use crate::config;
use crate::runtime::desk::DeskEvent;

/// Which tool, and with what.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  mcp-proxy call notes__add_note title=Milk text='Buy some'
  mcp-proxy call notes__add_note '{\"title\":\"Milk\",\"text\":\"Buy some\"}' --json

A value that is JSON is taken as such (count=3, tags='[\"a\"]'); anything else is a string.
`mcp-proxy explain NAME` shows a tool's arguments.")]
pub struct CallArgs {
    /// The tool, as `mcp-proxy list tools` shows it
    name: String,
    /// key=value …, or one JSON object
    arguments: Vec<String>,
    /// Print the protocol's result as it came
    #[arg(long)]
    json: bool,
}

/// Which resource.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  mcp-proxy read mcp-proxy://status")]
pub struct ReadArgs {
    /// The URI, as `mcp-proxy list resources` shows it
    uri: String,
    /// Print the protocol's result as it came
    #[arg(long)]
    json: bool,
}

/// Which prompt, and with what.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  mcp-proxy prompt notes__review topic=release")]
pub struct PromptArgs {
    /// The prompt, as `mcp-proxy list prompts` shows it
    name: String,
    /// key=value …, or one JSON object
    arguments: Vec<String>,
    /// Print the protocol's result as it came
    #[arg(long)]
    json: bool,
}

/// The codes of a name or URI that nobody offers.
const UNKNOWN_NAME: [i64; 2] = [-32602, -32002];

// What is shown of a result. All else is skipped unread: it may hold numbers that fit no type of ours.

#[derive(serde::Deserialize)]
struct CallResult {
    #[serde(default)]
    content: Vec<Block>,
    #[serde(rename = "structuredContent")]
    structured: Option<Box<RawValue>>,
    #[serde(rename = "isError")]
    is_error: Option<bool>,
}

#[derive(serde::Deserialize)]
struct ReadResult {
    contents: Vec<Contents>,
}

#[derive(serde::Deserialize)]
struct PromptResult {
    messages: Vec<Message>,
}

#[derive(serde::Deserialize)]
struct Message {
    role: String,
    content: Block,
}

#[derive(serde::Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    uri: Option<String>,
    resource: Option<Contents>,
}

#[derive(serde::Deserialize)]
struct Contents {
    uri: Option<String>,
    text: Option<String>,
    blob: Option<String>,
    #[serde(rename = "mimeType")]
    mime_type: Option<String>,
}

#[derive(serde::Deserialize)]
struct ErrorShown {
    code: i64,
    message: String,
}

/// Calls a tool.
///
/// # Errors
/// The configuration can't be used, the arguments can't be read, or the call failed.
pub fn call(global: &Global, args: &CallArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let arguments = arguments(&args.arguments, true)?;
    let params = format!(r#"{{"name":{},"arguments":{arguments}}}"#, json!(args.name));
    let result = ask(global, "tools/call", &args.name, &params, args.json, out)?;
    let Some(result) = result else { return Ok(ExitCode::FAILURE) };
    let result: CallResult = serde_json::from_str(result.get()).context("the result is no result of a tool")?;
    if !args.json {
        for block in &result.content {
            block_text(block, out)?;
        }
        if let (true, Some(structured)) = (result.content.is_empty(), &result.structured) {
            writeln!(out, "{structured}")?;
        }
    }
    Ok(ExitCode::from(u8::from(result.is_error.unwrap_or_default())))
}

/// Reads a resource.
///
/// # Errors
/// The configuration can't be used, or the read failed.
pub fn read(global: &Global, args: &ReadArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let params = json!({ "uri": args.uri }).to_string();
    let Some(result) = ask(global, "resources/read", &args.uri, &params, args.json, out)? else {
        return Ok(ExitCode::FAILURE);
    };
    if !args.json {
        let result: ReadResult = serde_json::from_str(result.get()).context("the result is no resource")?;
        for contents in &result.contents {
            if let Some(text) = &contents.text {
                writeln!(out, "{text}")?;
            } else {
                let length = contents.blob.as_deref().unwrap_or_default().len() / 4 * 3;
                let kind = contents.mime_type.as_deref().unwrap_or("binary");
                writeln!(out, "({kind}, about {length} bytes; --json shows them)")?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Gets a prompt.
///
/// # Errors
/// The configuration can't be used, the arguments can't be read, or it failed.
pub fn prompt(global: &Global, args: &PromptArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let arguments = arguments(&args.arguments, false)?;
    let params = format!(r#"{{"name":{},"arguments":{arguments}}}"#, json!(args.name));
    let Some(result) = ask(global, "prompts/get", &args.name, &params, args.json, out)? else {
        return Ok(ExitCode::FAILURE);
    };
    if !args.json {
        let result: PromptResult = serde_json::from_str(result.get()).context("the result is no prompt")?;
        for message in &result.messages {
            write!(out, "{}: ", message.role)?;
            block_text(&message.content, out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends the request; prints the result as it came if that is wanted. `None`: it failed, and the error was told.
fn ask(
    global: &Global,
    method: &str,
    name: &str,
    params: &str,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Option<Box<RawValue>>> {
    let (reply, status) = client::with(global, Starts::Needed, "waiting for the server", async |client| {
        client.open().await?;
        let reply = client.ask(method, params).await?;
        Ok((reply, client.inquire(DeskEvent::Status).await?))
    })?;
    match reply {
        Reply::Result(result) => {
            if json {
                writeln!(out, "{result}")?;
            }
            Ok(Some(result))
        }
        Reply::Error(error) => {
            let shown: ErrorShown = serde_json::from_str(error.get())?;
            if UNKNOWN_NAME.contains(&shown.code) {
                let down = |server: &Value| server["state"] == "failed" || server["state"] == "backoff";
                let may_have = |server: &Value| may_offer(server["prefix"].as_str().unwrap_or_default(), name);
                client::tell_missing(&status, |server| down(server) && may_have(server))?;
            }
            if json {
                writeln!(out, "{error}")?;
                return Ok(None);
            }
            bail!("{} ({})", shown.message, shown.code)
        }
    }
}

/// Whether a server of that prefix could have something of that name or URI.
fn may_offer(prefix: &str, name: &str) -> bool {
    let begins = |prefix: &str, next: &[char]| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(next));
    if prefix.is_empty() || begins(prefix, &['_', '-']) {
        return true;
    }
    let safe = config::scheme_prefix(prefix);
    // Any server may have a URI that carries no prefix.
    begins(&safe, &['+']) || begins(&format!("ui://{safe}"), &['/']) || name.contains(':') && !name.contains('+')
}

/// One JSON object, or pairs. `typed`: a value that is JSON is taken as such.
fn arguments(words: &[String], typed: bool) -> anyhow::Result<String> {
    if let [one] = words
        && one.trim_start().starts_with('{')
    {
        let object: &RawValue = serde_json::from_str(one).context("the arguments are no JSON object")?;
        return Ok(object.get().to_owned());
    }
    let mut object = Map::new();
    for word in words {
        let (key, text) =
            word.split_once('=').with_context(|| format!("{word:?} is neither key=value nor a JSON object"))?;
        let value = if typed { serde_json::from_str(text).unwrap_or_else(|_| text.into()) } else { text.into() };
        object.insert(key.to_owned(), value);
    }
    Ok(Value::from(object).to_string())
}

fn block_text(block: &Block, out: &mut dyn Write) -> anyhow::Result<()> {
    let resource = block.resource.as_ref();
    match block.kind.as_str() {
        "text" => writeln!(out, "{}", block.text.as_deref().unwrap_or_default())?,
        "resource_link" => writeln!(out, "{}", block.uri.as_deref().unwrap_or_default())?,
        "resource" => {
            let text = resource.and_then(|contents| contents.text.as_deref().or(contents.uri.as_deref()));
            writeln!(out, "{}", text.unwrap_or_default())?;
        }
        other => writeln!(out, "({other}; --json shows it)")?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_down_matters_to_its_own_names() {
        let check = |prefix: &str, name: &str, may: bool| assert_eq!(may_offer(prefix, name), may, "{prefix} {name}");
        check("gh", "gh__search", true);
        check("gh", "ghost__search", false);
        check("gh", "docs__search", false);
        check("", "search", true);
        check("My_Docs", "my-docs+mem:///a", true);
        check("docs", "ui://docs/a", true);
        check("docs", "mem:///a", true);
        check("docs", "gh+mem:///a", false);
    }

    #[test]
    fn arguments_are_pairs_or_an_object() {
        let words = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(arguments(&words(&["a=1", "b=x y", "c=[1]"]), true).unwrap(), r#"{"a":1,"b":"x y","c":[1]}"#);
        assert_eq!(arguments(&words(&["a=1"]), false).unwrap(), r#"{"a":"1"}"#);
        assert_eq!(arguments(&words(&[r#"{"n":1e400}"#]), true).unwrap(), r#"{"n":1e400}"#);
        assert!(arguments(&words(&["nonsense"]), true).is_err());
        assert_eq!(arguments(&[], true).unwrap(), "{}");
    }
}
