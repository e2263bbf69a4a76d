use std::path::Path;
use std::sync::LazyLock;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::config::{self, Config};
use crate::engine::names::Naming;

/// Servers `a` and `b` with those prefixes, `bare` without one.
const FILE: &str = r#"
    [servers.a]
    command = "x"
    tools = { deny = ["delete_*"], describe = { described = "Ours." } }
    resources = { deny = ["secret:*"] }
    [servers.b]
    command = "x"
    resources = { allow = ["docs:*", "config:*", "http*", "own:{id}"] }
    [servers.bare]
    command = "x"
    prefix = ""
"#;
const A: usize = 0;
const B: usize = 1;
const BARE: usize = 2;

fn parse(text: &str) -> Config {
    let parsed = config::parse(Path::new("mcp-proxy.toml"), text, None);
    assert!(parsed.faults.is_empty(), "{:?}", parsed.faults);
    parsed.config
}

fn tool(name: &str) -> String {
    format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#)
}

fn resource(uri: &str) -> String {
    format!(r#"{{"uri":"{uri}","name":"n"}}"#)
}

fn template(uri: &str) -> String {
    format!(r#"{{"uriTemplate":"{uri}","name":"n"}}"#)
}

fn listing(tools: &[&str], resources: &[&str], templates: &[&str]) -> Listing {
    Listing {
        tools: tools.iter().map(|name| tool(name).into()).collect(),
        resources: resources.iter().map(|uri| resource(uri).into()).collect(),
        templates: templates.iter().map(|uri| template(uri).into()).collect(),
        ..Listing::default()
    }
}

fn part(config: &Config, server: usize, listing: &Listing) -> Part {
    build_part(&Naming::new(config), &config.servers[server], listing, RenderClass::Structured)
}

/// A catalog of the servers of [`FILE`].
fn catalog(listings: &[(usize, Listing)]) -> Catalog {
    let config = parse(FILE);
    let mut catalog = Catalog::new(config.servers.len());
    for (server, listing) in listings {
        catalog.set(*server, Arc::new(part(&config, *server, listing)));
    }
    catalog
}

fn text(pieces: &[Bytes]) -> String {
    String::from_utf8(pieces.concat()).unwrap()
}

/// What the host reads: names, URIs or templates.
fn shown(catalog: &Catalog, kind: Kind) -> Vec<String> {
    let value: serde_json::Value = serde_json::from_str(&text(&catalog.snapshot(kind).whole())).unwrap();
    let entries = value[kind.array_key()].as_array().unwrap();
    entries.iter().map(|entry| entry[kind.name_key()].as_str().unwrap().to_owned()).collect()
}

fn one(server: usize, uri: &str) -> Owner {
    Owner::One { server, uri: uri.to_owned() }
}

fn refused(server: usize, uri: &str) -> Owner {
    Owner::Refused { server, uri: uri.to_owned() }
}

// === Parts ===

#[test]
fn a_part_is_filtered_renamed_described_mended_and_sorted() {
    let config = parse(FILE);
    let mut listing = listing(&["z", "delete_all", "described", "B", "a", "z", "a.b"], &[], &[]);
    listing.tools.push(Bytes::from_static(br#"{"name":"bare"}"#));
    listing.tools.push(Bytes::from_static(br#"{"name":"","inputSchema":{"type":"object"}}"#));
    let part = part(&config, A, &listing);
    let names: Vec<_> = part.entries(Kind::Tools).iter().map(|entry| entry.original.as_str()).collect();
    assert_eq!(names, ["B", "a", "a.b", "bare", "described", "z"]);
    for entry in part.entries(Kind::Tools) {
        let rendered: serde_json::Value =
            serde_json::from_slice(&part.rendered(Kind::Tools)[entry.at.clone()]).unwrap();
        assert_eq!(rendered["name"], entry.exposed.as_str());
        assert_eq!(serde_json::from_slice::<String>(&entry.exposed_token).unwrap(), entry.exposed);
        assert_eq!(serde_json::from_slice::<String>(&entry.original_token).unwrap(), entry.original);
        assert_eq!(part.find(Kind::Tools, &entry.exposed), Some(entry));
        assert_eq!(part.find_original(Kind::Tools, &entry.original), Some(entry));
    }
    assert!(text(&[part.rendered(Kind::Tools).clone()]).contains(r#""description":"Ours.""#));
    let mut repairs: Vec<_> = part.repairs().iter().map(|repair| (repair.name.as_str(), repair.what)).collect();
    repairs.sort_unstable();
    assert_eq!(repairs, [("", Fix::NoName), ("bare", Fix::SchemaAdded), ("z", Fix::Doubled)]);

    assert!(part.filtered(Kind::Tools, "a__delete_all") && part.filtered(Kind::Tools, "delete_all"));
    assert!(!part.filtered(Kind::Tools, "a__z") && !part.filtered(Kind::Prompts, "a__delete_all"));
    assert_eq!(part.find(Kind::Tools, "a__delete_all"), None);
}

#[test]
fn the_first_of_two_with_one_name_counts() {
    let config = parse(FILE);
    let mut listing = Listing::default();
    for description in ["first", "second"] {
        listing.prompts.push(format!(r#"{{"name":"p","description":"{description}"}}"#).into());
    }
    let part = part(&config, A, &listing);
    assert_eq!(part.rendered(Kind::Prompts), &br#"{"name":"a__p","description":"first"}"#[..]);
}

#[test]
fn hints_are_read() {
    let config = parse(FILE);
    let mut listing = Listing::default();
    listing.tools.push(Bytes::from_static(
        br#"{"name":"x","annotations":{"readOnlyHint":true,"idempotentHint":true},"execution":{"taskSupport":"optional"},"_meta":{"ui":{"resourceUri":"ui://f"}}}"#,
    ));
    listing.tools.push(Bytes::from_static(br#"{"name":"y","annotations":{"readOnlyHint":"true"}}"#));
    let part = part(&config, A, &listing);
    let [x, y] = part.entries(Kind::Tools) else { panic!("two tools") };
    assert!(x.read_only && x.idempotent && !y.read_only && !y.idempotent);
    assert_eq!((x.task_support, y.task_support), (TaskSupport::Optional, TaskSupport::Forbidden));
    assert_eq!((x.ui_uri.as_deref(), y.ui_uri.as_deref()), (Some("ui://f"), None));
}

#[test]
fn rules_without_effect_and_names_that_fold_are_told() {
    let config = parse(
        r#"
        [servers.a]
        command = "x"
        tools = { allow = ["*", "get_*", "list_*"], deny = ["drop_*"], rename = { gone = "new", get_x = "y" }, describe = { none = "d" } }
        prompts = { allow = ["*"] }
        resources = { deny = ["docs:*", "x:*"] }
        "#,
    );
    let part = part(&config, 0, &listing(&["get_x", "get_A", "get-a", "get_b"], &[], &["docs:{x}"]));
    let unmatched: Vec<_> = part.unmatched_rules().iter().map(|rule| (rule.rule, rule.pattern.as_str())).collect();
    // `*` in `allow` makes the others needless, and the configuration has dropped them.
    assert_eq!(
        unmatched,
        [("tools.deny", "drop_*"), ("resources.deny", "x:*"), ("tools.rename", "gone"), ("tools.describe", "none")]
    );
    assert_eq!(part.folded_names(), [["a__get-a", "a__get_A"]]);
}

// === Names ===

#[test]
fn names_are_looked_up_and_leave_with_their_server() {
    let mut catalog = catalog(&[(A, listing(&["x", "a.b"], &[], &[])), (BARE, listing(&["x", "a__x"], &[], &[]))]);
    let tools = shown(&catalog, Kind::Tools);
    assert_eq!((tools[1].as_str(), tools[3].as_str()), ("a__x", "x"));
    for (server, original, name) in
        [(A, "a.b", &tools[0]), (A, "x", &tools[1]), (BARE, "a__x", &tools[2]), (BARE, "x", &tools[3])]
    {
        let (at, entry) = catalog.tool(name).expect("it is listed");
        assert_eq!((at, entry.original.as_str()), (server, original));
    }
    assert_eq!(catalog.tool("a__y"), None);
    assert_eq!(catalog.prompt("a__x"), None);
    let changed = catalog.remove(A);
    assert_eq!(changed, Changed { tools: true, ..Changed::default() });
    assert_eq!(catalog.tool("a__x"), None);
    assert_eq!(catalog.remove(A), Changed::default());
}

#[test]
fn an_apps_call_needs_exactly_one_server_with_a_user_interface() {
    let ui = |name: &str| {
        let mut listing = listing(&["shared"], &[], &[]);
        let tool = format!(r#"{{"name":"{name}","_meta":{{"ui/resourceUri":"ui://view"}}}}"#);
        listing.tools.push(tool.into());
        listing
    };
    let mut catalog = catalog(&[(A, ui("mine")), (B, listing(&["plain", "shared"], &[], &[]))]);
    assert_eq!(catalog.app_tool("mine").map(|(server, _)| server), Some(A));
    assert_eq!(catalog.app_tool("shared").map(|(server, _)| server), Some(A), "the other has no user interface");
    assert_eq!(catalog.app_tool("plain"), None);
    assert_eq!(catalog.app_tool("a__mine"), None);
    assert_eq!(catalog.resource("ui://view"), one(A, "ui://view"));
    assert_eq!(catalog.resource("ui://a/view"), one(A, "ui://view"));
    let config = parse(FILE);
    catalog.set(B, Arc::new(part(&config, B, &ui("theirs"))));
    assert_eq!(catalog.app_tool("shared"), None);
    assert_eq!(catalog.app_tools("shared").count(), 2);
    assert_eq!(catalog.resource("ui://view"), Owner::Ambiguous(vec![A, B]));
}

// === URIs ===

#[test]
fn uris_find_their_owner() {
    let mut catalog = catalog(&[
        (A, listing(&[], &["config://x", "only:a", "secret:s", "http://web/1"], &["docs://{+p}", "docs://v1/{id}"])),
        (
            B,
            listing(
                &[],
                &["config://x", "http://web/1", "http://web/b"],
                &["docs://v1/{+p}", "own:{id}", "http://t/{id}"],
            ),
        ),
    ]);
    catalog.note_seen(A, "deep:seen");
    catalog.note_seen(B, "config://seen");
    for (uri, owner) in [
        // Listed.
        ("a+config://x", one(A, "config://x")),
        ("b+config://x", one(B, "config://x")),
        // Two list it: the first in the file serves it.
        ("http://web/1", one(A, "http://web/1")),
        ("http://web/b", one(B, "http://web/b")),
        // Templates.
        ("a+docs://v1/7", one(A, "docs://v1/7")),
        ("b+docs://v1/7", one(B, "docs://v1/7")),
        ("http://t/7", one(B, "http://t/7")),
        // A prefix says whose it is, listed or not.
        ("a+what:ever", one(A, "what:ever")),
        ("a+secret:t", refused(A, "secret:t")),
        ("a+secret:s", refused(A, "secret:s")),
        // What the rules of `b` allow, or a template that they allow.
        ("b+docs:y", one(B, "docs:y")),
        ("b+what:ever", refused(B, "what:ever")),
        ("b+own:7", one(B, "own:7")),
        // The child's own, where exactly one has it.
        ("only:a", one(A, "only:a")),
        ("config://x", Owner::Ambiguous(vec![A, B])),
        ("docs://v1/7", Owner::Ambiguous(vec![A, B])),
        ("docs://v2/7", one(A, "docs://v2/7")),
        ("own:7", one(B, "own:7")),
        ("deep:seen", one(A, "deep:seen")),
        ("config://seen", one(B, "config://seen")),
        ("secret:s", refused(A, "secret:s")),
        ("unheard:of", Owner::Unknown),
        ("a+https://x", Owner::Unknown),
        ("https://x", Owner::Unknown),
    ] {
        assert_eq!(catalog.resource(uri), owner, "{uri}");
    }
    assert_eq!(catalog.template("a+docs://{+p}"), Some((A, &"docs://{+p}".into())));
    assert_eq!(catalog.template("docs://{+p}"), None);
}

#[test]
fn the_server_without_prefix_serves_the_rest() {
    let mut catalog = catalog(&[
        (A, listing(&[], &["only:a", "x:both"], &[])),
        (BARE, listing(&[], &["x:both", "x:bare"], &["{+any}"])),
    ]);
    for (uri, owner) in [
        ("x:bare", one(BARE, "x:bare")),
        // Exactly what is exposed comes before what is not.
        ("x:both", one(BARE, "x:both")),
        ("a+unlisted:u", one(A, "unlisted:u")),
        ("un:listed", one(BARE, "un:listed")),
    ] {
        assert_eq!(catalog.resource(uri), owner, "{uri}");
    }
    let config = parse(FILE);
    catalog.set(BARE, Arc::new(part(&config, BARE, &listing(&[], &["x:bare"], &[]))));
    assert_eq!(catalog.resource("only:a"), one(A, "only:a"));
    assert_eq!(catalog.resource("un:listed"), one(BARE, "un:listed"), "servers may serve what they do not list");
    catalog.set(BARE, Arc::new(part(&config, BARE, &listing(&["t"], &[], &[]))));
    assert_eq!(catalog.resource("un:listed"), Owner::Unknown, "it has no resources");
}

#[test]
fn only_whole_exposed_uris_of_the_called_child_are_given_back() {
    let mut catalog =
        catalog(&[(A, listing(&[], &["doc:1", "http://w"], &["t:{x}"])), (B, listing(&[], &["config:1"], &[]))]);
    catalog.note_seen(A, "seen:1");
    for (value, expected) in [
        ("a+doc:1", Some("doc:1")),
        ("a+t:5", Some("t:5")),
        ("a+seen:1", Some("seen:1")),
        ("a+doc:2", None),
        ("a+secret:s", None),
        ("b+config:1", None),
        ("doc:1", None),
        ("see a+doc:1", None),
        ("http://w", None),
        ("a+http://w", None),
        ("", None),
    ] {
        assert_eq!(catalog.argument_uri(A, value).as_deref(), expected, "{value}");
    }
    assert_eq!(catalog.argument_uri(9, "a+doc:1"), None);
}

#[test]
fn what_was_seen_is_remembered_within_bounds() {
    let mut catalog = catalog(&[(A, Listing::default()), (B, Listing::default())]);
    catalog.note_seen(B, "docs:b");
    for n in 0..10 * MAX_SEEN {
        catalog.note_seen(A, &format!("s:{n}"));
    }
    let seen = &catalog.servers[A].seen;
    assert!(seen.young.len() + seen.old.len() <= 2 * MAX_SEEN);
    let newest = format!("s:{}", 10 * MAX_SEEN - 1);
    assert_eq!(catalog.resource(&newest), one(A, &newest));
    assert_eq!(catalog.resource("s:0"), Owner::Unknown);
    assert_eq!(catalog.resource("docs:b"), one(B, "docs:b"), "a talkative server costs no other its memory");
}

#[test]
fn what_was_seen_outlives_a_reload() {
    let mut old = catalog(&[(A, Listing::default()), (B, Listing::default())]);
    old.note_seen(B, "docs:b");
    let config = parse(FILE);
    let mut new = old.successor([Some(B), None, Some(7)]);
    assert_eq!(new.resource("docs:b"), one(0, "docs:b"));
    assert_eq!((new.tool("a__x"), new.servers.len()), (None, 3));
    new.set(1, Arc::new(part(&config, A, &listing(&["x"], &[], &[]))));
    assert_eq!(new.tool("a__x").map(|(server, _)| server), Some(1));
}

#[test]
fn equal_web_resources_are_listed_once_and_pass_on() {
    let config = parse(FILE);
    let web = listing(&[], &["http://w/1", "http://w/2"], &["http://w/{t}"]);
    let mut catalog = catalog(&[(B, web.clone())]);
    assert_eq!(shown(&catalog, Kind::Resources), ["http://w/1", "http://w/2"]);
    let before = catalog.snapshot(Kind::Resources).revision();
    assert!(catalog.set(A, Arc::new(part(&config, A, &listing(&[], &["http://w/2"], &["http://w/{t}"])))).resources);
    assert_eq!(shown(&catalog, Kind::Resources), ["http://w/2", "http://w/1"]);
    assert_eq!(shown(&catalog, Kind::Templates), ["http://w/{t}"]);
    assert_eq!(catalog.resource("http://w/2"), one(A, "http://w/2"));
    let hidden: Vec<_> = catalog.hidden().map(|(server, kind, name)| (server, kind, name.as_str())).collect();
    assert_eq!(hidden, [(B, Kind::Resources, "http://w/2"), (B, Kind::Templates, "http://w/{t}")]);
    // A third server that adds nothing to be seen changes nothing.
    let bare = Arc::new(part(&config, BARE, &listing(&[], &["http://w/1"], &[])));
    assert_eq!(catalog.set(BARE, bare), Changed::default());
    assert!(catalog.remove(A).resources);
    assert_eq!(shown(&catalog, Kind::Resources), ["http://w/1", "http://w/2"]);
    assert_eq!(catalog.snapshot(Kind::Resources).revision(), before);
    assert!(!catalog.remove(BARE).any());
    assert_eq!(catalog.hidden().count(), 0);
}

#[test]
fn entries_of_our_own_win_and_serve_nothing_else() {
    let config = parse(FILE);
    let mut catalog = Catalog::new(4);
    let ours = listing(&[], &["mcp-proxy://status"], &[]);
    catalog.set(3, Arc::new(Part::verbatim("mcp-proxy", &ours)));
    catalog.set(BARE, Arc::new(part(&config, BARE, &listing(&[], &["mcp-proxy://status", "x:y"], &[]))));
    assert_eq!(shown(&catalog, Kind::Resources), ["x:y", "mcp-proxy://status"]);
    assert_eq!(catalog.resource("mcp-proxy://status"), one(3, "mcp-proxy://status"));
    assert_eq!(catalog.resource("mcp-proxy://other"), one(BARE, "mcp-proxy://other"));
    catalog.remove(BARE);
    assert_eq!(catalog.resource("mcp-proxy://other"), Owner::Unknown);
}

// === Snapshots ===

#[test]
fn cursors_name_their_snapshot_and_can_not_be_made_up() {
    let config = parse(FILE);
    let names: Vec<String> = (0..10).map(|n| format!("t{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut catalog = catalog(&[(A, listing(&names, &["r:1", "r:2"], &[]))]);
    let mut snapshots = Snapshots::new([7; 32]);
    let cursor = |page: &Page| {
        let value: serde_json::Value = serde_json::from_str(&text(&page.pieces)).unwrap();
        assert_eq!(page.more, value.get("nextCursor").is_some());
        value["nextCursor"].as_str().unwrap_or_default().to_owned()
    };
    let page = snapshots.first(catalog.snapshot(Kind::Tools), 4);
    let first = cursor(&page);
    assert_eq!(page.count, 4);
    // The catalog changes, the walk goes on as it began.
    catalog.set(A, Arc::new(part(&config, A, &listing(&["new"], &[], &[]))));
    let page = snapshots.next(Kind::Tools, &first, 4).unwrap();
    assert!(text(&page.pieces).starts_with(r#"{"tools":[{"name":"a__t4","#));
    let page = snapshots.next(Kind::Tools, &cursor(&page), 4).unwrap();
    assert_eq!((page.count, page.more), (2, false));

    assert_eq!(snapshots.next(Kind::Prompts, &first, 4), Err(PageError), "of another kind");
    for bad in ["", "x", "AAAA", &first[..first.len() - 1], &first.replace(&first[3..5], "zz"), &format!("{first}A")] {
        assert_eq!(snapshots.next(Kind::Tools, bad, 4), Err(PageError), "{bad}");
    }
    assert_eq!(Snapshots::new([8; 32]).next(Kind::Tools, &first, 4), Err(PageError), "another process");

    // The last few stay alive, and other kinds push none out.
    for n in 0..4 {
        assert!(snapshots.next(Kind::Tools, &first, 4).is_ok(), "after {n} more");
        catalog.set(A, Arc::new(part(&config, A, &listing(&["x", "y", &format!("z{n}")], &["r:1", "r:2"], &[]))));
        snapshots.first(catalog.snapshot(Kind::Tools), 1);
        snapshots.first(catalog.snapshot(Kind::Tools), 1);
        snapshots.first(catalog.snapshot(Kind::Resources), 1);
    }
    assert_eq!(snapshots.next(Kind::Tools, &first, 4), Err(PageError), "it is gone");
}

#[test]
fn an_empty_list_is_a_list() {
    let mut snapshots = Snapshots::new([0; 32]);
    for size in [0, 5] {
        let page = snapshots.first(Catalog::new(3).snapshot(Kind::Templates), size);
        assert_eq!(text(&page.pieces), r#"{"resourceTemplates":[]}"#);
    }
}

#[test]
fn fifty_children_of_two_hundred_tools_list_alike_in_any_order() {
    let tables: Vec<_> = (0..50).map(|n| format!("[servers.s{n}]\ncommand = \"x\"\n")).collect();
    let config = parse(&tables.concat());
    let parts: Vec<_> = (0..50)
        .map(|server| {
            let names: Vec<String> = (0..200).map(|n| format!("tool.{}", (n * 77 + server) % 200)).collect();
            Arc::new(part(&config, server, &listing(&names.iter().map(String::as_str).collect::<Vec<_>>(), &[], &[])))
        })
        .collect();
    let mut forwards = Catalog::new(50);
    let mut backwards = Catalog::new(50);
    for server in 0..50 {
        assert!(forwards.set(server, Arc::clone(&parts[server])).tools);
        backwards.set(49 - server, Arc::clone(&parts[49 - server]));
    }
    let whole = text(&forwards.snapshot(Kind::Tools).whole());
    assert_eq!(whole, text(&backwards.snapshot(Kind::Tools).whole()));
    assert_eq!(forwards.snapshot(Kind::Tools).revision(), backwards.snapshot(Kind::Tools).revision());
    let names: BTreeSet<_> = shown(&forwards, Kind::Tools).into_iter().collect();
    assert_eq!(names.len(), 10_000);
    for name in names {
        assert!(forwards.tool(&name).is_some());
    }
    assert_eq!(forwards.set(7, Arc::clone(&parts[7])), Changed::default(), "the same bytes are no change");
}

#[test]
fn the_same_entry_of_another_server_is_no_change() {
    let page = || listing(&[], &["http:a"], &[]);
    let mut catalog = Catalog::new(3);
    assert!(catalog.set(0, Arc::new(part(&OPEN, 0, &page()))).resources);
    assert_eq!(catalog.set(2, Arc::new(part(&OPEN, 2, &page()))), Changed::default(), "hidden by the first");
    let before = text(&catalog.snapshot(Kind::Resources).whole());
    assert_eq!(catalog.remove(0), Changed::default(), "the third one's shows up in its place");
    assert_eq!(text(&catalog.snapshot(Kind::Resources).whole()), before);
}

// === Laws ===

/// A small world: what each of the three servers lists.
fn world() -> impl Strategy<Value = Vec<Listing>> {
    let names = proptest::collection::btree_set("[ab]_?[ab.]?", 0..6);
    let uris = proptest::collection::btree_set("(http|u|):?[ab]{1,2}", 0..6);
    let one = (names, uris).prop_map(|(names, uris)| {
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let uris: Vec<_> = uris.iter().map(String::as_str).collect();
        let mut listing = listing(&names, &uris, &[]);
        listing.prompts.clone_from(&listing.tools);
        listing
    });
    proptest::collection::vec(one, 3)
}

/// Without the filters of [`FILE`].
static OPEN: LazyLock<Config> = LazyLock::new(|| {
    parse("[servers.a]\ncommand='x'\n[servers.b]\ncommand='x'\n[servers.bare]\ncommand='x'\nprefix=''\n")
});

proptest! {
    #[test]
    fn the_order_of_arrival_does_not_matter(
        worlds in proptest::collection::vec(world(), 1..4),
        steps in proptest::collection::vec((0..3_usize, 0..4_usize), 0..12),
    ) {
        let config = &*OPEN;
        let mut catalog = Catalog::new(3);
        let mut now: [Option<Arc<Part>>; 3] = Default::default();
        for (server, which) in steps {
            let before = Kind::ALL.map(|kind| text(&catalog.snapshot(kind).whole()));
            let others = now.clone();
            let new = worlds.get(which).map(|world| Arc::new(part(config, server, &world[server])));
            let changed = match &new {
                Some(part) => catalog.set(server, Arc::clone(part)),
                None => catalog.remove(server),
            };
            now[server] = new;
            let after = Kind::ALL.map(|kind| text(&catalog.snapshot(kind).whole()));
            prop_assert_eq!(changed.tools, before[0] != after[0]);
            prop_assert_eq!(changed.prompts, before[1] != after[1]);
            prop_assert_eq!(changed.resources, before[2..] != after[2..]);
            for (other, part) in others.iter().enumerate().filter(|(other, _)| *other != server) {
                let same = match (part, catalog.part(other)) {
                    (Some(before), Some(after)) => Arc::ptr_eq(before, after),
                    (None, None) => true,
                    _ => false,
                };
                prop_assert!(same, "another server's part was touched");
            }
        }
        let mut anew = Catalog::new(3);
        for server in [2, 0, 1] {
            if let Some(part) = &now[server] {
                anew.set(server, Arc::clone(part));
            }
        }
        for kind in Kind::ALL {
            let (ours, theirs) = (catalog.snapshot(kind), anew.snapshot(kind));
            prop_assert_eq!(text(&ours.whole()), text(&theirs.whole()));
            prop_assert!(ours.same_bytes(&theirs));
            prop_assert_eq!(ours.revision(), theirs.revision());
            let names = shown(&catalog, kind);
            prop_assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "a name is listed twice");
            prop_assert_eq!(names.len(), ours.count());
            for name in &names {
                let found = catalog.entry(kind, name).map(|(server, entry)| (server, entry.original.clone()));
                prop_assert!(found.is_some());
                prop_assert_eq!(found, anew.entry(kind, name).map(|(server, entry)| (server, entry.original.clone())));
            }
        }
        for uri in shown(&catalog, Kind::Resources) {
            prop_assert!(matches!(catalog.resource(&uri), Owner::One { .. }), "{}", uri);
        }
    }

    #[test]
    fn pages_of_any_size_make_the_whole(world in world(), size in 1..8_usize) {
        let config = &*OPEN;
        let mut catalog = Catalog::new(3);
        for (server, listing) in world.iter().enumerate() {
            catalog.set(server, Arc::new(part(config, server, listing)));
        }
        for kind in Kind::ALL {
            let snapshot = catalog.snapshot(kind);
            let whole: serde_json::Value = serde_json::from_str(&text(&snapshot.whole())).unwrap();
            let mut snapshots = Snapshots::new([1; 32]);
            let mut entries = Vec::new();
            let mut page = snapshots.first(snapshot, size);
            loop {
                let mut value: serde_json::Value = serde_json::from_str(&text(&page.pieces)).unwrap();
                let more = value[kind.array_key()].as_array().unwrap().clone();
                prop_assert_eq!(more.len(), page.count);
                prop_assert!(!page.more || more.len() == size);
                entries.extend(more);
                let Some(cursor) = value["nextCursor"].take().as_str().map(str::to_owned) else { break };
                page = snapshots.next(kind, &cursor, size).expect("its snapshot is alive");
            }
            prop_assert_eq!(&serde_json::Value::Array(entries), &whole[kind.array_key()]);
        }
    }
}
