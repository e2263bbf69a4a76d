//! Pages and freshness: cursors, changes, storms, stale catalogs (F22–F26).

use serde_json::json;

use crate::harness::{Host, Setup};

fn numbered(prefix: &str, stem: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{stem}{n:03}")).collect()
}

#[test]
fn f22_all_pages_of_all_children_arrive_once() {
    let mut host = Setup::new()
        .proxy("own_resources = false")
        .server("a", "only tools=24 prompts=24 resources=24 templates=24 page=8")
        .server("b", "only tools=3 prompts=3 resources=3 templates=3")
        .open();
    for (kind, stem) in [("tools", "__tool_"), ("prompts", "__prompt_")] {
        assert_eq!(host.names(kind), [numbered("a", stem, 24), numbered("b", stem, 3)].concat());
    }
    assert_eq!(host.names("resources"), [numbered("a", "+mem:///res/", 24), numbered("b", "+mem:///res/", 3)].concat());
    assert_eq!(host.names("resourceTemplates").len(), 27);
}

#[test]
fn f22_own_pages_are_cuts_of_one_snapshot() {
    let mut host = Setup::new().proxy("page_size = 10").server("a", "only tools=24").server("b", "only tools=9").open();
    let all = [numbered("a", "__tool_", 24), numbered("b", "__tool_", 9)].concat();
    assert_eq!(host.names("tools"), all);
    // A change in the middle of a walk neither loops nor doubles anything in it.
    let first = host.ask("tools/list", "{}").result();
    assert_eq!(first["tools"].as_array().unwrap().len(), 10);
    host.call("a__tool_000", "{}");
    let cursor = first["nextCursor"].as_str().unwrap().to_owned();
    let error = host.ask("tools/list", r#"{"cursor":"nonsense"}"#).error(-32602);
    assert_eq!(error["data"]["source"], "mcp-proxy");
    // A cursor of one kind is none of another.
    host.ask("prompts/list", &json!({ "cursor": cursor }).to_string()).error(-32602);
    let second = host.ask("tools/list", &json!({ "cursor": cursor }).to_string()).result();
    let again = host.ask("tools/list", &json!({ "cursor": cursor }).to_string()).result();
    assert_eq!(second, again, "a page can be asked for again");
}

#[test]
fn f22_a_change_during_a_walk_does_not_touch_the_walk() {
    let mut host = Setup::new().proxy("page_size = 50").server("a", "tools=20").open();
    let before = host.names("tools");
    let mut walk: Vec<String> = Vec::new();
    let mut page = host.ask("tools/list", "{}").result();
    host.call("a__change_tools", r#"{"add":"aaa_first"}"#);
    host.notification("notifications/tools/list_changed");
    loop {
        walk.extend(page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        let Some(cursor) = page.get("nextCursor") else { break };
        page = host.ask("tools/list", &json!({ "cursor": cursor }).to_string()).result();
    }
    assert_eq!(walk, before);
    assert_eq!(host.names("tools").len(), before.len() + 1);
}

#[test]
fn f22_cursors_that_repeat_or_never_end_are_cut_with_a_warning() {
    let mut host = Setup::new()
        .server("a", "only tools=24 page=8 cursor=repeat")
        .server("b", "only tools=24 page=8 cursor=empty")
        .server("c", "only tools=3")
        .open();
    let names = host.names_until("tools", "all are there", |names| names.iter().any(|name| name == "c__tool_002"));
    assert_eq!(names.iter().filter(|name| name.starts_with("a__")).count(), 8, "{names:?}");
    assert_eq!(names.iter().filter(|name| name.starts_with("b__")).count(), 24, "an empty cursor ends a list");
    host.logged("ended before its end");
}

#[test]
fn f22_fifty_children_list_completely_and_in_the_same_bytes() {
    let mut setup = Setup::new();
    let mut expected = Vec::new();
    for n in 0..50 {
        let key = format!("s{n:02}");
        setup = setup.server(&key, "only tools=200 page=17");
        expected.extend(numbered(&key, "__tool_", 200));
    }
    let mut host = setup.proxy(r#"list_wait = "50s""#).open();
    let first = host.ask("tools/list", "{}");
    let names: Vec<String> = first.result()["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, expected);
    assert_eq!(host.ask("tools/list", "{}").raw_result(), first.raw_result());
    let mut again = host.restart().open();
    assert_eq!(again.ask("tools/list", "{}").raw_result(), first.raw_result(), "also after a restart");
    assert!(again.notifications("notifications/tools/list_changed").is_empty());
}

fn changed(host: &mut Host, kind: &str) -> usize {
    host.notifications(&format!("notifications/{kind}/list_changed")).len()
}

#[test]
fn f23_each_kind_of_news_arrives_once_and_the_next_list_shows_it() {
    let mut host = Setup::new().tuned("a", "", r#"tools = { deny = ["secret_*"], rename = { fresh = "new" } }"#).open();
    host.settle();
    host.call("a__change_tools", r#"{"add":"fresh"}"#);
    host.notification("notifications/tools/list_changed");
    host.call("a__change_tools", r#"{"kind":"prompts","add":"p"}"#);
    host.notification("notifications/prompts/list_changed");
    host.call("a__change_tools", r#"{"kind":"resources","add":"mem:///new"}"#);
    host.notification("notifications/resources/list_changed");
    assert!(host.names("tools").contains(&"a__new".to_owned()), "renamed");
    assert!(host.names("prompts").contains(&"a__p".to_owned()));
    assert!(host.names("resources").contains(&"a+mem:///new".to_owned()));
    // What a filter hides is no news.
    host.call("a__change_tools", r#"{"add":"secret_x"}"#);
    host.call("a__change_tools", r#"{"add":"later"}"#);
    host.notification("notifications/tools/list_changed");
    host.names_until("tools", "the later one is there", |names| names.contains(&"a__later".to_owned()));
    assert!(!host.names("tools").iter().any(|name| name.contains("secret")));
    assert_eq!(["tools", "prompts", "resources"].map(|kind| changed(&mut host, kind)), [0, 0, 0]);
}

#[test]
fn f23_updates_reach_the_watcher_in_its_own_spelling() {
    let mut host = Setup::new().server("a", "").server("b", "").open();
    host.names("resources");
    host.ask("resources/subscribe", r#"{"uri":"a+mem:///hello"}"#).result();
    assert_eq!(host.call("a__subscriptions", "{}").told(), json!(["mem:///hello"]));
    assert_eq!(host.call("b__subscriptions", "{}").told(), json!([]));
    host.call("b__updated", "{}");
    host.call("a__updated", r#"{"uri":"mem:///blob"}"#);
    host.call("a__updated", "{}");
    assert_eq!(host.notification("notifications/resources/updated").params()["uri"], "a+mem:///hello");
    host.ask("resources/unsubscribe", r#"{"uri":"a+mem:///hello"}"#).result();
    assert_eq!(host.call("a__subscriptions", "{}").told(), json!([]));
    host.call("a__updated", "{}");
    assert!(host.notifications("notifications/resources/updated").is_empty(), "nobody watches");
}

#[test]
fn f24_a_child_that_announces_at_every_list_is_asked_a_few_times() {
    let mut host = Setup::new().server("a", "changed_on_list record").server("b", "").open();
    host.names("tools");
    let ready = host.status_until("a", "its tools are there", |status| status["tools"] != 0);
    assert_eq!(ready["state"], "ready");
    host.names_until("tools", "they are listed", |names| names.contains(&"a__echo".to_owned()));
    host.settle();
    // Each of ours is answered from the snapshot, and none leads to another fetch.
    let before = host.sent("a", "tools/list");
    for _ in 0..200 {
        host.names("tools");
    }
    let after = host.sent("a", "tools/list");
    assert!(after - before < 10 && after < 20, "{before} lists, then {after}");
    assert_eq!(changed(&mut host, "tools"), 0, "nothing changed, so nothing is told");
}

#[test]
fn f25_a_storm_costs_few_lists_and_its_last_change_is_not_lost() {
    let mut host = Setup::new().server("a", "record").open();
    host.settle();
    let before = host.sent("a", "tools/list");
    host.call("a__storm", r#"{"n":200,"add":"last"}"#);
    host.notification("notifications/tools/list_changed");
    host.names_until("tools", "the last change is there", |names| names.contains(&"a__last".to_owned()));
    let lists = host.sent("a", "tools/list") - before;
    assert!((1..=20).contains(&lists), "{lists} lists for 200 announcements");
    assert_eq!(changed(&mut host, "tools"), 0, "it was told once");
}

#[test]
fn f26_the_catalog_of_a_new_life_replaces_the_old_one() {
    let setup = Setup::new();
    let catalog = setup.path("CATALOG");
    let with = |tools: &str| std::fs::write(&catalog, format!(r#"{{"tools":[{tools}]}}"#)).unwrap();
    let tool = |name: &str, more: &str| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}{more}}}"#);
    let mine = format!("catalog={}", catalog.display());
    with(&[tool("alpha", ""), tool("beta", r#","outputSchema":{"type":"object"}"#)].join(","));
    let mut host = setup.server_with("a", &[&mine, "@2:error1:tools/list=-32000"], "").open();
    assert!(host.names("tools").contains(&"a__alpha".to_owned()));
    with(&[tool("beta", ""), tool("gamma", "")].join(","));
    host.call("a__exit", r#"{"code":1}"#).error(-31010);
    // Meanwhile the old names stay; then the new ones are there, although the first list of this life failed.
    let names = host.names_until("tools", "the new list is there", |names| names.contains(&"a__gamma".to_owned()));
    assert!(!names.contains(&"a__alpha".to_owned()), "{names:?}");
    let beta = host.list("tools").into_iter().find(|tool| tool["name"] == "a__beta").unwrap();
    assert!(beta.get("outputSchema").is_none(), "{beta:#}");
    let error = host.call("a__alpha", "{}").error(-32602);
    assert!(error["message"].as_str().unwrap().contains("a__alpha"), "{error:#}");
    assert_eq!(host.call("a__gamma", "{}").text(), "a gamma {}");
    assert_eq!(host.status("a")["generation"], 2);
}

#[test]
fn f26_a_failed_first_list_is_no_empty_catalog() {
    let mut host = Setup::new().server("a", "error1:tools/list=-32603").open();
    let names = host.names("tools");
    assert!(names.contains(&"a__echo".to_owned()), "the list waited for the second attempt: {names:?}");
}
