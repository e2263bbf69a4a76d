//! `mcp-proxy call`, `read`, `prompt`: one request without a host.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Map, Value, json};

use super::app::Global;
use super::client::{self, Reply, Starts};

/// Which tool, and with what.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  mcp-proxy call notes__add_note title=Milk text='Buy some'
  mcp-proxy call notes__add_note '{\"title\":\"Milk\",\"text\":\"Buy some\"}' --json

A value that is JSON is taken as such (count=3, tags='[\"a\"]'); anything else is a string.")]
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

/// Calls a tool.
///
/// # Errors
/// The configuration can't be used, the arguments can't be read, or the call failed.
pub fn call(global: &Global, args: &CallArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let arguments = arguments(&args.arguments, true)?;
    let params = format!(r#"{{"name":{},"arguments":{arguments}}}"#, json!(args.name));
    let result = ask(global, "tools/call", &params, args.json, out)?;
    let Some(result) = result else { return Ok(ExitCode::FAILURE) };
    if !args.json {
        for block in result["content"].as_array().into_iter().flatten() {
            block_text(block, out)?;
        }
        if result["content"].as_array().is_none_or(Vec::is_empty)
            && let Some(structured) = result.get("structuredContent")
        {
            writeln!(out, "{structured:#}")?;
        }
    }
    Ok(ExitCode::from(u8::from(result["isError"] == true)))
}

/// Reads a resource.
///
/// # Errors
/// The configuration can't be used, or the read failed.
pub fn read(global: &Global, args: &ReadArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let params = json!({ "uri": args.uri }).to_string();
    let Some(result) = ask(global, "resources/read", &params, args.json, out)? else { return Ok(ExitCode::FAILURE) };
    if !args.json {
        for contents in result["contents"].as_array().into_iter().flatten() {
            if let Some(text) = contents["text"].as_str() {
                writeln!(out, "{text}")?;
            } else {
                let length = contents["blob"].as_str().unwrap_or_default().len() / 4 * 3;
                writeln!(
                    out,
                    "({}, about {length} bytes; --json shows them)",
                    contents["mimeType"].as_str().unwrap_or("binary")
                )?;
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
    let Some(result) = ask(global, "prompts/get", &params, args.json, out)? else { return Ok(ExitCode::FAILURE) };
    if !args.json {
        for message in result["messages"].as_array().into_iter().flatten() {
            write!(out, "{}: ", message["role"].as_str().unwrap_or_default())?;
            block_text(&message["content"], out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends the request; prints the result as it came if that is wanted. `None`: it failed, and the error was told.
fn ask(global: &Global, method: &str, params: &str, json: bool, out: &mut dyn Write) -> anyhow::Result<Option<Value>> {
    let reply = client::with(global, Starts::Needed, "waiting for the server", async |client| {
        client.open().await?;
        client.ask(method, params).await
    })?;
    match reply {
        Reply::Result(result) => {
            if json {
                writeln!(out, "{result}")?;
            }
            Ok(Some(serde_json::from_str(result.get())?))
        }
        Reply::Error(error) => {
            if json {
                writeln!(out, "{error}")?;
                return Ok(None);
            }
            let value: Value = serde_json::from_str(error.get())?;
            bail!("{} ({})", value["message"].as_str().unwrap_or_default(), value["code"])
        }
    }
}

/// One JSON object, or pairs. `typed`: a value that is JSON is taken as such.
fn arguments(words: &[String], typed: bool) -> anyhow::Result<String> {
    if let [one] = words
        && one.trim_start().starts_with('{')
    {
        let object: &serde_json::value::RawValue =
            serde_json::from_str(one).context("the arguments are no JSON object")?;
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

fn block_text(block: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    match block["type"].as_str().unwrap_or_default() {
        "text" => writeln!(out, "{}", block["text"].as_str().unwrap_or_default())?,
        "resource_link" => writeln!(out, "{}", block["uri"].as_str().unwrap_or_default())?,
        "resource" => {
            let resource = &block["resource"];
            writeln!(out, "{}", resource["text"].as_str().or(resource["uri"].as_str()).unwrap_or_default())?;
        }
        other => writeln!(out, "({other}; --json shows it)")?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
