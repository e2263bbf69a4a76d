//! `mcp-proxy install` and `uninstall`: our entry in a host's file.

use std::ffi::OsStr;
use std::io::{BufRead as _, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::import::{count, report, store_secrets, tell_needs};
use crate::config;
use crate::hosts::import::Store;
use crate::hosts::install::{Edit, Entry, Moved, Plan, Refusal, Replace, Request, Run, Step};
use crate::hosts::{ENTRY_NAME, Surroundings, by_id};

const INSTALL_EXAMPLES: &str = "Examples:
  mcp-proxy install cursor --dry-run
  mcp-proxy install claude-desktop --replace
  mcp-proxy install vscode --project ~/work/app --yes";

/// Where the entry goes, and how it is done.
#[derive(Clone, Debug, clap::Args)]
pub struct PlaceArgs {
    /// The host: claude-desktop, claude-code, cursor, vscode, windsurf, zed, codex, gemini, cline, goose, opencode …
    #[arg(value_name = "HOST")]
    pub host: String,
    /// Edit this file in place of the host's own
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Edit the host's file inside of this project
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    pub project: Option<PathBuf>,
    /// Edit the file even if the host has a command of its own for it
    #[arg(long)]
    pub no_cli: bool,
    /// The entry's name
    #[arg(long, value_name = "NAME", default_value = ENTRY_NAME)]
    pub name: String,
    /// Show the change and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Don't ask
    #[arg(long, short)]
    pub yes: bool,
}

/// Puts the proxy into a host's file.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = INSTALL_EXAMPLES)]
pub struct InstallArgs {
    /// Where and how
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The configuration that the host's proxy uses; default: the person's own
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Move the host's own servers into that configuration, and out of the host's file
    #[arg(long)]
    pub replace: bool,
    /// With --replace: keep secrets in the system's keyring in place of environment variables
    #[arg(long, requires = "replace")]
    pub keyring: bool,
}

/// Takes the proxy out of a host's file; after an install the file is what it was.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  mcp-proxy uninstall cursor")]
pub struct UninstallArgs {
    /// Where and how
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// What a command works in; a value, so that tests can make their own.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Home, environment, platform.
    pub around: Surroundings,
    /// The absolute path of our binary.
    pub binary: PathBuf,
    /// Seconds since 1970.
    pub unix_seconds: u64,
    /// Whether a person can be asked.
    pub interactive: bool,
}

// === impl Scene ===

impl Scene {
    /// The process' own.
    ///
    /// # Errors
    ///
    /// There is no home directory, or the system does not tell where our binary lies.
    pub fn of_process() -> anyhow::Result<Self> {
        Ok(Self {
            around: Surroundings::of_process().context("the system names no home directory")?,
            binary: binary()?,
            unix_seconds: std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
            interactive: std::io::stdin().is_terminal() && std::io::stderr().is_terminal(),
        })
    }
}

/// Where this program lies, by the name that it was started with. A package manager keeps each version in a directory of
/// its own behind a link that stays: what the link stands for today is gone after the next upgrade.
fn binary() -> anyhow::Result<PathBuf> {
    let real = std::env::current_exe().context("the system does not tell where this program lies")?;
    let name = std::env::args_os().next().unwrap_or_default();
    Ok(as_started(Path::new(&name), std::env::var_os("PATH").as_deref(), &real))
}

/// The absolute path that `name` has, if it stands for `real`; else `real` itself.
fn as_started(name: &Path, path: Option<&OsStr>, real: &Path) -> PathBuf {
    let has_place = name.components().count() > 1;
    let found = if has_place {
        std::path::absolute(name).ok()
    } else {
        path.and_then(|path| config::find_program(&name.to_string_lossy(), Some(path), None).ok())
    };
    let is_real = |found: &PathBuf| found.is_absolute() && found.canonicalize().ok() == real.canonicalize().ok();
    found.filter(is_real).unwrap_or_else(|| real.to_owned())
}

/// Runs `install`: the change goes to `out`, the rest to `err`. Returns the exit code.
///
/// # Errors
///
/// What went wrong.
pub fn run(args: &InstallArgs, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<u8> {
    run_in(args, &Scene::of_process()?, out, err)
}

/// Runs `uninstall`. Returns the exit code.
///
/// # Errors
///
/// What went wrong.
pub fn run_uninstall(args: &UninstallArgs, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<u8> {
    run_uninstall_in(args, &Scene::of_process()?, out, err)
}

/// As [`run`], in a scene of one's own.
///
/// # Errors
///
/// As [`run`].
pub fn run_in(args: &InstallArgs, scene: &Scene, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<u8> {
    let mut entry_args = vec!["run".to_owned()];
    if let Some(config) = &args.config {
        entry_args.extend(["--config".to_owned(), absolute(config)?]);
    }
    let config = config::config_path(args.config.as_deref()).context("where the configuration would lie")?;
    let request = request(&args.place, scene, entry_args, config.clone())?;
    let store = if args.keyring { Store::Keyring } else { Store::Env };
    let replace = args.replace.then(|| Replace { config: config.clone(), store });
    let plan = match request.install(replace.as_ref()) {
        Ok(plan) => plan,
        Err(refusal) => return refused(&refusal, out, err),
    };
    show(&plan, out, err)?;
    warn_of_doubles(&plan, &config, err)?;
    if let Some(moved) = &plan.moved {
        show_moved(moved, &request, err)?;
    }
    let config_edit = plan.moved.as_ref().and_then(|moved| moved.edit.as_ref());
    if !config.exists() && config_edit.is_none() {
        writeln!(
            err,
            "There is no configuration {} yet: the proxy does not start without it. Write it, or see `mcp-proxy import`.",
            scene.around.tilde(&config)
        )?;
    }
    if let Step::Paste(_) = plan.step {
        writeln!(err, "{}", request.host.after)?;
    }
    if matches!(plan.step, Step::Nothing(_) | Step::Paste(_)) && config_edit.is_none() {
        tell_needs_of(&plan, store, scene, err)?;
        return Ok(0);
    }
    if args.place.dry_run {
        tell_needs_of(&plan, store, scene, err)?;
    }
    if !go_on(&args.place, scene, err)? {
        return Ok(u8::from(!args.place.dry_run));
    }
    if let Some(moved) = plan.moved.as_ref().filter(|_| store == Store::Keyring) {
        store_secrets(&moved.rendered, err)?;
    }
    if let Some(edit) = config_edit {
        apply(edit, scene, err)?;
    }
    match &plan.step {
        Step::Edit(edit) => apply(edit, scene, err)?,
        Step::Run(command) => {
            let code = add_by_command(command, &request, scene, out, err)?;
            if code != 0 {
                return Ok(code);
            }
        }
        Step::Nothing(_) | Step::Paste(_) => {}
    }
    writeln!(err, "{}", request.host.after)?;
    tell_needs_of(&plan, store, scene, err)?;
    Ok(0)
}

fn tell_needs_of(plan: &Plan, store: Store, scene: &Scene, err: &mut dyn Write) -> std::io::Result<()> {
    plan.moved.as_ref().map_or(Ok(()), |moved| tell_needs(&moved.rendered, store, &scene.around, err))
}

/// Runs the host's own command; where it did not add the entry, the file is edited.
fn add_by_command(
    command: &Run,
    request: &Request,
    scene: &Scene,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    if let Err(error) = command.apply(&scene.around) {
        writeln!(err, "{error}")?;
    }
    match request.without_cli().install(None) {
        Ok(Plan { step: Step::Edit(edit), .. }) => {
            writeln!(err, "The command did not add the entry; the file is edited in its place.")?;
            out.write_all(edit.diff.as_bytes())?;
            apply(&edit, scene, err)?;
            Ok(0)
        }
        Ok(plan) => {
            // What is there now was looked up in the file, whatever the command said.
            if let (Step::Nothing(_), Some(path)) = (&plan.step, request.path()) {
                writeln!(err, "`{}` added the entry to {}.", command.name(), scene.around.tilde(&path))?;
            }
            Ok(0)
        }
        Err(refusal) => refused(&refusal, out, err),
    }
}

/// As [`run_uninstall`], in a scene of one's own.
///
/// # Errors
///
/// As [`run_uninstall`].
pub fn run_uninstall_in(
    args: &UninstallArgs,
    scene: &Scene,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let config = config::config_path(None).unwrap_or_default();
    let request = request(&args.place, scene, vec!["run".to_owned()], config)?;
    let plan = match request.uninstall() {
        Ok(plan) => plan,
        // What install would put in is no help for taking out.
        Err(refusal) => return refused(&Refusal { snippet: String::new(), ..refusal }, out, err),
    };
    show(&plan, out, err)?;
    if matches!(plan.step, Step::Nothing(_) | Step::Paste(_)) {
        return Ok(0);
    }
    if !go_on(&args.place, scene, err)? {
        return Ok(u8::from(!args.place.dry_run));
    }
    let edit = match plan.step {
        Step::Edit(edit) => Some(edit),
        Step::Run(command) => {
            if let Err(error) = command.apply(&scene.around) {
                writeln!(err, "{error}")?;
            }
            match request.without_cli().uninstall() {
                Ok(Plan { step: Step::Edit(edit), .. }) => Some(edit),
                Ok(Plan { step: Step::Nothing(_), .. }) => {
                    let path = request.path().unwrap_or_default();
                    writeln!(err, "`{}` took the entry out of {}.", command.name(), scene.around.tilde(&path))?;
                    None
                }
                _ => None,
            }
        }
        Step::Nothing(_) | Step::Paste(_) => None,
    };
    if let Some(edit) = edit {
        apply(&edit, scene, err)?;
    }
    writeln!(err, "{}", request.host.after)?;
    Ok(0)
}

fn request<'s>(place: &PlaceArgs, scene: &'s Scene, args: Vec<String>, config: PathBuf) -> anyhow::Result<Request<'s>> {
    let host = by_id(&place.host).map_err(anyhow::Error::msg)?;
    let file = match (&place.file, &place.project) {
        (Some(file), _) => Some(file.clone()),
        (None, Some(project)) => {
            let file = host.project_file.with_context(|| format!("{} has no file in projects", host.title))?;
            Some(project.join(file))
        }
        (None, None) => None,
    };
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if place.name.is_empty() || !place.name.chars().all(valid) {
        bail!("{:?} can't be the entry's name: letters, digits, `-` and `_` are allowed", place.name);
    }
    let command = scene.binary.to_str().context("the path of this program is not UTF-8")?.to_owned();
    let entry = Entry { name: place.name.clone(), command, args };
    Ok(Request { host, around: &scene.around, entry, file, use_cli: !place.no_cli, config })
}

fn absolute(path: &Path) -> anyhow::Result<String> {
    let path = std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))?;
    path.into_os_string().into_string().ok().context("the path of the configuration is not UTF-8")
}

fn show(plan: &Plan, out: &mut dyn Write, err: &mut dyn Write) -> std::io::Result<()> {
    if let Some(edit) = plan.moved.as_ref().and_then(|moved| moved.edit.as_ref()) {
        out.write_all(edit.diff.as_bytes())?;
    }
    match &plan.step {
        Step::Nothing(why) => writeln!(err, "{why}")?,
        Step::Edit(edit) => {
            out.write_all(edit.diff.as_bytes())?;
            if edit.removes() {
                writeln!(err, "{} is removed, since nothing but our entry is in it.", edit.path().display())?;
            }
        }
        Step::Run(command) => writeln!(out, "{}", command.line())?,
        Step::Paste(snippet) => out.write_all(snippet.as_bytes())?,
    }
    for note in &plan.notes {
        writeln!(err, "{note}")?;
    }
    Ok(())
}

/// A server that the host starts and the proxy, too, is seen twice by the model; some hosts even mix the two up.
fn warn_of_doubles(plan: &Plan, config: &Path, err: &mut dyn Write) -> std::io::Result<()> {
    let Ok(loaded) = config::load(config, None) else { return Ok(()) };
    for name in plan.keeps.iter().filter(|name| loaded.config.servers.iter().any(|server| server.key == **name)) {
        writeln!(err, "{name} is with the host and behind the proxy: the model sees its tools twice.")?;
    }
    Ok(())
}

fn show_moved(moved: &Moved, request: &Request, err: &mut dyn Write) -> std::io::Result<()> {
    writeln!(err, "Behind the proxy from now on: {}.", count(moved.names.len(), "server"))?;
    for left in &moved.stay {
        writeln!(err, "  {} stays with {}: {}", left.name, request.host.title, left.why)?;
    }
    report(&moved.import, &moved.rendered, err)
}

fn refused(refusal: &Refusal, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<u8> {
    writeln!(err, "{}.", refusal.why)?;
    out.write_all(refusal.snippet.as_bytes())?;
    Ok(1)
}

/// Whether the change is to be made: asked of the person if there is one.
fn go_on(place: &PlaceArgs, scene: &Scene, err: &mut dyn Write) -> anyhow::Result<bool> {
    if place.dry_run {
        writeln!(err, "Nothing was written (--dry-run).")?;
        return Ok(false);
    }
    if place.yes {
        return Ok(true);
    }
    if !scene.interactive {
        bail!("nobody can be asked here: give --yes to write this, or --dry-run to see it only");
    }
    write!(err, "Write this? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    let agreed = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if !agreed {
        writeln!(err, "Nothing was written.")?;
    }
    Ok(agreed)
}

fn apply(edit: &Edit, scene: &Scene, err: &mut dyn Write) -> anyhow::Result<()> {
    let copy = edit.apply(scene.unix_seconds)?;
    let path = scene.around.tilde(edit.path());
    let done = if edit.removes() { "Removed" } else { "Wrote" };
    match copy {
        Some(copy) => writeln!(err, "{done} {path}; what it was before is in {}.", scene.around.tilde(&copy))?,
        None => writeln!(err, "{done} {path}.")?,
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_was_started_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().canonicalize().expect("it is there");
        let (real, other) = (dir.join("1.2.3/mcp-proxy"), dir.join("other/mcp-proxy"));
        for file in [&real, &other] {
            std::fs::create_dir(file.parent().expect("a parent")).expect("made");
            std::fs::write(file, "").expect("written");
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(file, executable).expect("set");
        }
        std::fs::create_dir(dir.join("bin")).expect("made");
        let link = dir.join("bin/mcp-proxy");
        std::os::unix::fs::symlink(&real, &link).expect("linked");
        let check = |name: &Path, path: &[&str], expected: &Path| {
            let path = std::env::join_paths(path.iter().map(|part| dir.join(part))).expect("a PATH");
            assert_eq!(as_started(name, Some(&path), &real), expected, "{} {path:?}", name.display());
        };
        check(&link, &[], &link);
        check(Path::new("mcp-proxy"), &["bin"], &link);
        check(Path::new("mcp-proxy"), &["absent", "bin", "other"], &link);
        // Another program of that name, or none: the program itself.
        check(Path::new("mcp-proxy"), &["other", "bin"], &real);
        check(Path::new("mcp-proxy"), &[], &real);
        check(Path::new("a name of its own"), &["bin"], &real);
    }
}
