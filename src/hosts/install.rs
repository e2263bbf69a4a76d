//! Our entry into a host's file, and out of it again.
//!
//! Planning reads and decides; [`Edit::apply`] and [`Run::apply`] do. After an install and an uninstall the file is the
//! same to the byte: the copy that was made is restored if installing into it gives the text that is there now (through
//! the copies of further installs), so nothing needs to be remembered elsewhere. If somebody else wrote the file since,
//! only our entry is taken out.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::file::{Snapshot, WriteError, backups};
use super::import::{self, Import, Left, Rendered, Store};
use super::plan::{Document, Field, fields, snippet};
use super::{Form, Format, Host, REMOTE_SUPPORTED, Surroundings, diff};

pub use super::plan::Entry;

/// What is to be installed or taken out, and where.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The host.
    pub host: &'static Host,
    /// The process' surroundings.
    pub around: &'a Surroundings,
    /// Our entry.
    pub entry: Entry,
    /// The file in place of the host's own; then its command is not used.
    pub file: Option<PathBuf>,
    /// Whether the host's own command may be used.
    pub use_cli: bool,
    /// Our file, unless the host's entry names another.
    pub config: PathBuf,
}

/// Where the host's own servers are moved to.
#[derive(Clone, Debug)]
pub struct Replace {
    /// Our file.
    pub config: PathBuf,
    /// Where secrets go.
    pub store: Store,
}

/// What would be done.
#[derive(Debug)]
pub struct Plan {
    /// The step that concerns the host.
    pub step: Step,
    /// What moves into our file before it.
    pub moved: Option<Moved>,
    /// The host's own servers that stay with it.
    pub keeps: Vec<String>,
    /// What a person should know, a sentence each.
    pub notes: Vec<String>,
}

/// One step.
#[derive(Debug)]
pub enum Step {
    /// Nothing is to be done; why, as a sentence.
    Nothing(String),
    /// A file is edited.
    Edit(Edit),
    /// The host's own command is run.
    Run(Run),
    /// A person pastes this.
    Paste(String),
}

/// Servers that move into our file.
#[derive(Debug)]
pub struct Moved {
    /// All that the host's file has.
    pub import: Import,
    /// Our file with them.
    pub rendered: Rendered,
    /// The change of our file; `None`: it has them already.
    pub edit: Option<Edit>,
    /// The names that leave the host's file.
    pub names: Vec<String>,
    /// What stays with the host.
    pub stay: Vec<Left>,
}

/// The change of a file.
#[derive(Debug)]
pub struct Edit {
    snapshot: Snapshot,
    after: Option<String>,
    backup: Backup,
    /// The change as people see it, secrets masked.
    pub diff: String,
}

#[derive(Debug)]
enum Backup {
    /// A copy is made first.
    Make,
    /// These copies were made by our installs, and the first of them is what is restored: they have served.
    Drop(Vec<PathBuf>),
    /// The file is ours alone.
    None,
}

/// A command of the host.
#[derive(Debug)]
pub struct Run {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

/// Why a file is not edited, and what to put into it by hand.
#[derive(Debug)]
pub struct Refusal {
    /// A sentence.
    pub why: String,
    /// What to paste; empty where there is nothing.
    pub snippet: String,
}

// === impl Plan ===

impl Plan {
    fn of(step: Step) -> Self {
        Self { step, moved: None, keeps: Vec::new(), notes: Vec::new() }
    }
}

// === impl Edit ===

impl Edit {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.snapshot.path
    }

    /// Whether the file is removed.
    pub fn removes(&self) -> bool {
        self.after.is_none()
    }

    /// Writes it; returns the copy that was made.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::replace`]; then nothing was changed.
    pub fn apply(&self, unix_seconds: u64) -> Result<Option<PathBuf>, WriteError> {
        let made = match self.backup {
            Backup::Make => self.snapshot.back_up(unix_seconds)?,
            Backup::Drop(_) | Backup::None => None,
        };
        if let Err(error) = self.snapshot.replace(self.after.as_deref()) {
            if let Some(made) = &made {
                let _ = std::fs::remove_file(made);
            }
            return Err(error);
        }
        if let Backup::Drop(copies) = &self.backup {
            for copy in copies {
                let _ = std::fs::remove_file(copy);
            }
        }
        Ok(made)
    }

    fn new(
        snapshot: Snapshot,
        after: Option<String>,
        backup: Backup,
        around: &Surroundings,
        values: &[&Value],
    ) -> Self {
        let before = snapshot.text.as_deref().unwrap_or_default();
        let name = around.tilde(&snapshot.path);
        let diff = diff::masked(&name, before, after.as_deref().unwrap_or_default(), values);
        Self { snapshot, after, backup, diff }
    }
}

// === impl Run ===

impl Run {
    /// The command as a person would type it.
    pub fn line(&self) -> String {
        let words = [self.program.display().to_string()].into_iter().chain(self.args.iter().cloned());
        let quote = |word: String| if word.contains([' ', '"', '{']) { format!("'{word}'") } else { word };
        words.map(quote).collect::<Vec<_>>().join(" ")
    }

    /// Its first words: what a person would call it.
    pub fn name(&self) -> String {
        let program = super::file::program_name(&self.program.display().to_string());
        let words = self.args.iter().take_while(|word| !word.starts_with(['-', '{', '/'])).take(2);
        [program].into_iter().chain(words.cloned()).collect::<Vec<_>>().join(" ")
    }

    /// Runs it, with nothing on its standard input.
    ///
    /// # Errors
    ///
    /// What it said when it failed.
    pub fn apply(&self, around: &Surroundings) -> Result<(), String> {
        let mut command = std::process::Command::new(&self.program);
        command.args(&self.args).env_clear().envs(&around.vars).stdin(std::process::Stdio::null());
        let output = command.output().map_err(|error| format!("can't run {}: {error}", self.program.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = if said.trim().is_empty() { String::from_utf8_lossy(&output.stdout) } else { said };
        Err(format!("`{}` failed ({}): {}", self.line(), output.status, said.trim()))
    }
}

// === impl Request ===

impl Request<'_> {
    /// Plans an install.
    ///
    /// # Errors
    ///
    /// [`Refusal`] where the file can't be edited without doubt.
    pub fn install(&self, replace: Option<&Replace>) -> Result<Plan, Refusal> {
        let Some(snapshot) = self.snapshot()? else {
            return Ok(Plan::of(Step::Paste(self.snippet())));
        };
        if self.host.form == Form::Continue {
            return self.install_block(snapshot, replace);
        }
        let text = snapshot.text.clone().unwrap_or_default();
        let document = self.document(&snapshot, &text)?;
        let entries = document.entries();
        let present = document.own_entry(&self.entry.name, &self.entry.command);
        let name = present.clone().unwrap_or_else(|| self.entry.name.clone());
        if present.is_none() && entries.iter().any(|(other, _)| *other == name) {
            let file = self.around.tilde(&snapshot.path);
            return Err(self.refuse(format!("{file} has another server called `{name}`; choose a name with --name")));
        }
        let moved = replace.map(|replace| self.plan_move(replace, &snapshot, &text)).transpose()?;
        let gone = moved.as_ref().map(|moved| moved.names.clone()).unwrap_or_default();
        let fields = fields(self.host.form, &Entry { name: name.clone(), ..self.entry.clone() });
        let after = document.with(&gone, Some((&name, &fields))).map_err(|why| self.refuse_edit(&snapshot, &why))?;
        let keeps = others(&entries, &name, &gone);
        let mut notes = Vec::new();
        if !keeps.is_empty() && gone.is_empty() {
            notes.push(format!("{} keeps {} (--replace moves what can be moved).", self.host.title, keeps.join(", ")));
        }
        if after == text {
            let why =
                format!("{} has it already, as `{name}` in {}.", self.host.title, self.around.tilde(&snapshot.path));
            return Ok(Plan { moved, keeps, notes, ..Plan::of(Step::Nothing(why)) });
        }
        let by_command = if present.is_none() && gone.is_empty() { self.command(true, &name) } else { None };
        if self.host.cli.is_some() && by_command.is_none() && self.host.id == "claude-code" {
            notes.push("End running Claude Code sessions first: they rewrite this file.".to_owned());
        }
        let step = by_command.map_or_else(
            || Step::Edit(Edit::new(snapshot, Some(after), Backup::Make, self.around, &[&document.value])),
            Step::Run,
        );
        Ok(Plan { step, moved, keeps, notes })
    }

    /// The same by the file's edit alone, for where the host's own command failed.
    #[must_use]
    pub fn without_cli(&self) -> Self {
        Self { use_cli: false, ..self.clone() }
    }

    /// Plans an uninstall.
    ///
    /// # Errors
    ///
    /// [`Refusal`] where the file can't be edited without doubt.
    pub fn uninstall(&self) -> Result<Plan, Refusal> {
        let nothing = |why: String| Ok(Plan::of(Step::Nothing(why)));
        let Some(snapshot) = self.snapshot()? else {
            let text = format!("{} keeps its servers in no file: remove the entry in its settings.", self.host.title);
            return nothing(text);
        };
        let place = self.around.tilde(&snapshot.path);
        let Some(text) = snapshot.text.clone() else {
            return nothing(format!("{} has no file {place}.", self.host.title));
        };
        let document = self.document(&snapshot, &text)?;
        let own = if self.host.form == Form::Continue {
            import_has_own(&text, &snapshot.path, self).then(|| self.entry.name.clone())
        } else {
            document.own_entry(&self.entry.name, &self.entry.command)
        };
        let Some(name) = own else { return nothing(format!("{place} has no entry of ours.")) };
        let values = [&document.value];
        if self.host.form == Form::Continue {
            if document.entries_of("mcpServers") > 1 {
                return Err(self.refuse(format!("{place} holds other servers, too: take our entry out by hand")));
            }
            let edit = Edit::new(snapshot, None, Backup::None, self.around, &values);
            return Ok(Plan::of(Step::Edit(edit)));
        }
        if let Some((served, before)) = self.exact_copies(&snapshot.path, &document, &text, &name, &[]) {
            let backup = if served.is_empty() { Backup::None } else { Backup::Drop(served) };
            let restored = before.as_deref().and_then(|text| Some(Document::parse(self.host, text).ok()?.value));
            let values: Vec<&Value> = values.into_iter().chain(&restored).collect();
            let edit = Edit::new(snapshot, before, backup, self.around, &values);
            return Ok(Plan::of(Step::Edit(edit)));
        }
        let notes = self.not_put_back(&snapshot.path, &document);
        if let Some(run) = self.command(false, &name) {
            return Ok(Plan { notes, ..Plan::of(Step::Run(run)) });
        }
        let after = document.with(&[name], None).map_err(|why| self.refuse_edit(&snapshot, &why))?;
        let edit = Edit::new(snapshot, Some(after), Backup::Make, self.around, &values);
        Ok(Plan { notes, ..Plan::of(Step::Edit(edit)) })
    }

    /// The file that is edited; `None`: the host has none.
    pub fn path(&self) -> Option<PathBuf> {
        self.file.clone().or_else(|| self.around.host_file(self.host))
    }

    /// What a person would put into the host's file.
    pub fn snippet(&self) -> String {
        snippet(self.host, &self.entry)
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, Refusal> {
        if self.host.format == Format::Paste && self.file.is_none() {
            return Ok(None);
        }
        let Some(path) = self.path() else { return Ok(None) };
        let read = Snapshot::read(&path);
        read.map(Some).map_err(|error| self.refuse(format!("can't read {}: {error}", self.around.tilde(&path))))
    }

    fn document<'t>(&self, snapshot: &Snapshot, text: &'t str) -> Result<Document<'t>, Refusal> {
        Document::parse(self.host, text).map_err(|error| {
            let path = self.around.tilde(&snapshot.path);
            self.refuse(format!("{path} can't be read ({error}), so it was not touched; mend it, or put this into it"))
        })
    }

    fn refuse(&self, why: String) -> Refusal {
        Refusal { why, snippet: self.snippet() }
    }

    fn refuse_edit(&self, snapshot: &Snapshot, why: &str) -> Refusal {
        let path = self.around.tilde(&snapshot.path);
        self.refuse(format!("{path} was not touched, since {why}; change it by hand"))
    }

    /// The host's own command, if it may and can be used.
    fn command(&self, add: bool, name: &str) -> Option<Run> {
        if !self.use_cli || self.file.is_some() {
            return None;
        }
        let cli = self.host.cli?;
        let template = if add { cli.add } else { cli.remove? };
        let program = self.around.find_program(cli.program)?;
        let mut args = Vec::new();
        for word in template {
            match *word {
                "{args}" => args.extend(self.entry.args.iter().cloned()),
                "{json}" => args.push(self.json(name)),
                "{name}" => args.push(name.to_owned()),
                "{command}" => args.push(self.entry.command.clone()),
                other => args.push(other.to_owned()),
            }
        }
        Some(Run { program, args })
    }

    fn json(&self, name: &str) -> String {
        let mut map = serde_json::Map::new();
        map.insert("name".to_owned(), name.into());
        map.extend(fields(self.host.form, &self.entry).into_iter().map(|field| (field.key, field.value)));
        Value::Object(map).to_string()
    }

    /// Continue's block file: ours alone, written or replaced as a whole.
    fn install_block(&self, snapshot: Snapshot, replace: Option<&Replace>) -> Result<Plan, Refusal> {
        let mut notes = Vec::new();
        if replace.is_some() {
            notes.push(
                "Continue's own servers stay where they are: take them out of its config.yaml by hand.".to_owned(),
            );
        }
        let after = self.snippet();
        let place = self.around.tilde(&snapshot.path);
        match &snapshot.text {
            Some(text) if *text == after => {
                return Ok(Plan { notes, ..Plan::of(Step::Nothing(format!("Continue has it already, in {place}."))) });
            }
            Some(text) if !import_has_own(text, &snapshot.path, self) => {
                return Err(self.refuse(format!("{place} is not ours; choose another file with --file")));
            }
            _ => {}
        }
        let edit = Edit::new(snapshot, Some(after), Backup::None, self.around, &[]);
        Ok(Plan { notes, ..Plan::of(Step::Edit(edit)) })
    }

    /// What moves into our file, and that file's change.
    fn plan_move(&self, replace: &Replace, snapshot: &Snapshot, text: &str) -> Result<Moved, Refusal> {
        let own = Path::new(&self.entry.command);
        // A file without servers has nothing to move.
        let import = import::from_text(text, &snapshot.path, Some(self.host), self.around, Some(own));
        let mut import = import.unwrap_or_default();
        let mut stay = Vec::new();
        import.servers.retain(|server| {
            let why = if !server.scope.is_empty() {
                format!("it belongs to {}", server.scope)
            } else if server.is_remote() && !REMOTE_SUPPORTED {
                "remote servers are not supported yet".to_owned()
            } else if server.needs_workspace() {
                "it needs the folder that the editor has open".to_owned()
            } else {
                return true;
            };
            stay.push(Left { name: server.original.clone(), why, same: false });
            false
        });
        let moving = |name: &str| import.servers.iter().any(|server| server.original == name || server.key == name);
        let mut names: Vec<String> = import.servers.iter().map(|server| server.original.clone()).collect();
        for left in &import.left {
            let other = left.why.split('`').nth(1).unwrap_or_default();
            if left.same && moving(other) {
                names.push(left.name.clone());
            } else {
                stay.push(left.clone());
            }
        }
        stay.retain(|left| !left.why.contains("this proxy itself"));
        let config = Snapshot::read(&replace.config)
            .map_err(|error| self.refuse(format!("can't read {}: {error}", replace.config.display())))?;
        let rendered = import.render(replace.store, config.text.as_deref(), self.around);
        let rendered = rendered.map_err(|why| self.refuse(format!("{}: {why}", replace.config.display())))?;
        let before = config.text.clone().unwrap_or_default();
        let edit = (rendered.added > 0).then(|| {
            let value = super::read::parse(&before, super::read::Syntax::Toml).unwrap_or_default();
            Edit::new(config, Some(rendered.toml.clone()), Backup::Make, self.around, &[&value])
        });
        Ok(Moved { import, rendered, edit, names, stay })
    }

    /// The copies that give the present text when we install into them, one after the other, and the text of the first
    /// of them, which has no entry of ours; no text: we made the file. `used`: copies that led here.
    fn exact_copies(
        &self,
        path: &Path,
        document: &Document,
        text: &str,
        name: &str,
        used: &[PathBuf],
    ) -> Option<(Vec<PathBuf>, Option<String>)> {
        let entries = document.entries();
        let (_, entry) = entries.iter().find(|(other, _)| other == name)?;
        let fields: Vec<Field> = entry
            .as_object()?
            .iter()
            .map(|(key, value)| Field { key: key.clone(), value: value.clone(), essential: true })
            .collect();
        let again = |copy: &Document, before: &str| {
            let gone: Vec<String> = copy
                .entries()
                .into_iter()
                .map(|(other, _)| other)
                .filter(|other| !entries.iter().any(|(present, _)| present == other))
                .collect();
            // What a person took out is not brought back: it must be in our file.
            if !gone.is_empty() && !self.were_moved(path, before, entry, &gone) {
                return None;
            }
            copy.with(&gone, Some((name, &fields))).ok()
        };
        for copy in backups(path).into_iter().filter(|copy| !used.contains(copy)) {
            let Ok(before) = std::fs::read_to_string(&copy) else { continue };
            let Ok(read) = Document::parse(self.host, &before) else { continue };
            if again(&read, &before).as_deref() != Some(text) {
                continue;
            }
            let used: Vec<PathBuf> = used.iter().cloned().chain([copy]).collect();
            if !read.entries().iter().any(|(other, _)| other == name) {
                return Some((used, Some(before)));
            }
            // An install that found an earlier one: what was before that is wanted.
            if let Some(found) = self.exact_copies(path, &read, &before, name, &used) {
                return Some(found);
            }
        }
        let nothing = Document::parse(self.host, "").ok()?;
        (again(&nothing, "").as_deref() == Some(text)).then(|| (used.to_vec(), None))
    }

    /// Whether servers of a copy were moved into our file, and not removed by a person: some of them are there. Not all
    /// need be, for in our file a person may rename or remove them.
    fn were_moved(&self, path: &Path, before: &str, entry: &Value, names: &[String]) -> bool {
        let own = Path::new(&self.entry.command);
        let Ok(import) = import::from_text(before, path, Some(self.host), self.around, Some(own)) else { return false };
        let words: Vec<&str> = ["command", "args"]
            .iter()
            .filter_map(|key| entry.get(*key)?.as_array())
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let chosen = words.windows(2).find(|pair| pair[0] == "--config").map(|pair| Path::new(pair[1]));
        let text = std::fs::read_to_string(chosen.unwrap_or(&self.config)).unwrap_or_default();
        let config = super::read::parse(&text, super::read::Syntax::Toml).unwrap_or_default();
        let Some(table) = config.get("servers").and_then(Value::as_object) else { return false };
        names.iter().any(|name| {
            let key = import.servers.iter().find(|server| server.original == *name).map(|server| &server.key);
            match key {
                Some(key) => table.keys().any(|other| other.starts_with(key.as_str())),
                None => import.left.iter().any(|left| left.same && left.name == *name),
            }
        })
    }

    /// Servers of the newest copy without our entry that are not in the file.
    fn not_put_back(&self, path: &Path, document: &Document) -> Vec<String> {
        let present = document.entries();
        for copy in backups(path) {
            let Ok(before) = std::fs::read_to_string(&copy) else { continue };
            let Ok(before) = Document::parse(self.host, &before) else { continue };
            if before.own_entry(&self.entry.name, &self.entry.command).is_some() {
                continue;
            }
            let missing: Vec<String> = before
                .entries()
                .into_iter()
                .map(|(name, _)| name)
                .filter(|name| !present.iter().any(|(other, _)| other == name))
                .collect();
            if missing.is_empty() {
                return Vec::new();
            }
            return vec![format!(
                "The file was changed since the install, so these are not put back: {}. They stand in {}.",
                missing.join(", "),
                self.around.tilde(&copy)
            )];
        }
        Vec::new()
    }
}

/// The names of a file's servers but ours and those that leave.
fn others(entries: &[(String, Value)], name: &str, gone: &[String]) -> Vec<String> {
    let names = entries.iter().map(|(other, _)| other.clone());
    names.filter(|other| other != name && !gone.contains(other)).collect()
}

/// Whether one of a block file's servers is this program.
fn import_has_own(text: &str, path: &Path, request: &Request) -> bool {
    let own = Path::new(&request.entry.command);
    import::from_text(text, path, Some(request.host), request.around, Some(own))
        .is_ok_and(|import| import.left.iter().any(|left| left.why.contains("this proxy itself")))
}
