use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn page(items: &[&str], cursor: Option<&str>) -> Bytes {
    let items: Vec<_> = items.iter().map(|item| format!("{{\"name\":\"{item}\"}}")).collect();
    let cursor = cursor.map(|cursor| format!(",\"nextCursor\":{cursor}")).unwrap_or_default();
    format!("{{\"tools\":[{}]{cursor}}}", items.join(",")).into()
}

fn names(items: &[Bytes]) -> Vec<String> {
    let value = |item: &Bytes| serde_json::from_slice::<serde_json::Value>(item).unwrap();
    items.iter().map(|item| value(item)["name"].as_str().unwrap().to_owned()).collect()
}

fn done(outcome: PageOutcome) -> Vec<String> {
    match outcome {
        PageOutcome::Done(items) => names(&items),
        other => panic!("not done: {other:?}"),
    }
}

/// A pager whose first page was asked for.
fn asked(legacy: bool, now: Instant) -> Pager {
    let mut pager = Pager::new(Kind::Tools, legacy);
    assert_eq!(pager.poll_request(now), None);
    pager.want(now);
    assert_eq!(pager.poll_request(now), Some(None));
    assert_eq!(pager.poll_request(now), None, "one page request at a time");
    pager
}

#[test]
fn pages_are_followed_to_the_end() {
    let now = Instant::now();
    for last in [None, Some("null"), Some("\"\"")] {
        let mut pager = asked(true, now);
        assert_eq!(pager.page(now, &page(&["b"], Some("\"c\\u0031\""))), PageOutcome::More);
        assert_eq!(pager.deadline(), Some(now));
        assert_eq!(pager.poll_request(now), Some(Some("\"c\\u0031\"".into())), "cursors go back as they were spelled");
        assert_eq!(pager.page(now, &page(&[], Some("\"c2\""))), PageOutcome::More, "an empty page is a page");
        assert_eq!(pager.poll_request(now), Some(Some("\"c2\"".into())));
        assert_eq!(done(pager.page(now, &page(&["a"], last))), ["b", "a"]);
        assert_eq!((pager.deadline(), pager.is_busy()), (None, false));
    }
}

#[test]
fn an_empty_cursor_continues_a_modern_list() {
    let now = Instant::now();
    let mut pager = asked(false, now);
    assert_eq!(pager.page(now, &page(&["a"], Some("\"\""))), PageOutcome::More);
    assert_eq!(pager.poll_request(now), Some(Some("\"\"".into())));
    let PageOutcome::Stopped(items, Warning::RepeatedCursor) = pager.page(now, &page(&["b"], Some("\"\""))) else {
        panic!("a repeated cursor");
    };
    assert_eq!(names(&items), ["a", "b"]);
}

#[test]
fn a_list_without_end_is_ended() {
    let now = Instant::now();
    let walk = |each: &dyn Fn(usize) -> Bytes| {
        let mut pager = asked(true, now).with_max_bytes(4 << 20);
        for n in 1.. {
            match pager.page(now, &each(n)) {
                PageOutcome::More => assert!(pager.poll_request(now).is_some()),
                PageOutcome::Stopped(items, warning) => return (n, items.len(), warning),
                other => panic!("{other:?}"),
            }
        }
        unreachable!()
    };
    let cursor = |n: usize| format!("\"{n}\"");
    assert_eq!(walk(&|n| page(&["a"], Some(&cursor(n)))), (MAX_PAGES, MAX_PAGES, Warning::TooManyPages));
    assert_eq!(walk(&|n| page(&["a"], Some(&cursor(n % 3)))), (4, 4, Warning::RepeatedCursor));
    let full = vec!["a"; 60_000];
    assert_eq!(walk(&|n| page(&full, Some(&cursor(n)))), (2, MAX_ITEMS, Warning::TooManyItems));
    assert_eq!(walk(&|_| page(&["a"], Some("7"))), (1, 1, Warning::BadCursor));
    let long = "x".repeat(2 << 20);
    assert_eq!(walk(&|n| page(&[&long], Some(&cursor(n)))), (2, 2, Warning::TooManyBytes));
}

#[test]
fn exactly_the_largest_list_is_whole() {
    let now = Instant::now();
    let mut pager = asked(true, now);
    assert_eq!(done(pager.page(now, &page(&vec!["a"; MAX_ITEMS], None))).len(), MAX_ITEMS);
}

#[test]
fn an_overtaken_list_is_fetched_again_and_the_third_is_published() {
    let mut now = Instant::now();
    let mut pager = asked(true, now);
    let mut pauses = Vec::new();
    for round in 0..5 {
        pager.invalidate(now);
        pager.invalidate(now);
        let outcome = pager.page(now, &page(&["a"], None));
        match outcome {
            PageOutcome::Overtaken => assert!(round < 2, "the third in a row is published"),
            outcome => assert_eq!((done(outcome), round >= 2), (vec!["a".to_owned()], true)),
        }
        let at = pager.deadline().expect("it is fetched again");
        assert_eq!(pager.poll_request(at.checked_sub(MS).unwrap()), None);
        pauses.push(at - now);
        now = at;
        assert_eq!(pager.poll_request(now), Some(None));
    }
    assert_eq!(pauses, [50, 100, 5000, 5000, 5000].map(Duration::from_millis));
    // It holds still at last.
    assert_eq!(done(pager.page(now, &page(&["b"], None))), ["b"]);
    assert_eq!(pager.deadline(), None);
}

#[test]
fn a_change_before_the_last_page_overtakes() {
    let now = Instant::now();
    let mut pager = asked(true, now);
    assert_eq!(pager.page(now, &page(&["a"], Some("\"1\""))), PageOutcome::More);
    pager.invalidate(now);
    assert!(pager.poll_request(now).is_some());
    assert_eq!(pager.page(now, &page(&["b"], None)), PageOutcome::Overtaken);
}

#[test]
fn a_child_that_announces_after_every_list_is_asked_less_and_less_often() {
    let mut now = Instant::now();
    let mut pager = asked(true, now);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        done(pager.page(now, &page(&["a"], None)));
        now += MS;
        pager.invalidate(now);
        let at = pager.deadline().expect("it is fetched again");
        pauses.push((at - now).as_millis() + 1);
        now = at;
        assert_eq!(pager.poll_request(now), Some(None));
    }
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    done(pager.page(now, &page(&["a"], None)));
    // After a while of silence a change is looked at at once.
    now += Duration::from_secs(11);
    pager.invalidate(now);
    assert_eq!(pager.poll_request(now), Some(None));
}

#[test]
fn failures_are_told_apart() {
    let now = Instant::now();
    let mut pager = asked(true, now);
    assert_eq!(pager.failed(now, Some(-32601)), FailOutcome::Empty);
    assert_eq!(pager.deadline(), None);

    let mut pager = asked(true, now);
    for expected in [FailOutcome::Restart, FailOutcome::Restart, FailOutcome::Retry(BACKOFF.0)] {
        assert_eq!(pager.page(now, &page(&["a"], Some("\"1\""))), PageOutcome::More);
        assert!(pager.poll_request(now).is_some());
        assert_eq!(pager.failed(now, Some(-32602)), expected);
        assert_eq!(pager.poll_request(now + BACKOFF.0), Some(None));
    }
    assert_eq!(done(pager.page(now, &page(&["a"], None))), ["a"], "nothing is left of the walks that failed");

    let mut pager = asked(true, now);
    let mut pauses = Vec::new();
    for code in [Some(-32602), None, Some(-32603), None, None, None, None, None, None] {
        let FailOutcome::Retry(pause) = pager.failed(now, code) else { panic!("a retry") };
        pauses.push(u64::try_from(pause.as_millis()).unwrap());
        assert_eq!(pager.poll_request(now + pause.checked_sub(MS).unwrap()), None);
        assert_eq!(pager.poll_request(now + pause), Some(None));
    }
    assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
}

#[test]
fn what_is_no_page_is_invalid_and_asked_for_again() {
    let now = Instant::now();
    for bad in ["{}", "[]", "7", r#"{"tools":{}}"#, r#"{"tools":null}"#, r#"{"prompts":[]}"#] {
        let mut pager = asked(true, now);
        let outcome = pager.page(now, &Bytes::from_static(bad.as_bytes()));
        assert!(matches!(outcome, PageOutcome::Invalid(_)), "{bad}: {outcome:?}");
        assert_eq!(pager.deadline(), Some(now + BACKOFF.0));
    }
    let mut pager = Pager::new(Kind::Tools, true);
    assert!(matches!(pager.page(now, &page(&[], None)), PageOutcome::Invalid(_)), "nobody asked");
}

#[test]
fn a_new_generation_forgets_the_fetch_under_way() {
    let now = Instant::now();
    let mut pager = asked(true, now);
    pager.reset(now);
    assert_eq!(pager.poll_request(now), Some(None));
    assert_eq!(done(pager.page(now, &page(&["a"], None))), ["a"]);
}

#[test]
fn methods_and_kinds_belong_together() {
    for kind in Kind::ALL {
        assert_eq!(Kind::of_method(kind.method()), Some(kind));
        assert!(Kind::changed_kinds(kind.changed_method()).contains(&kind));
    }
    assert_eq!(Kind::of_method(Method::Ping), None);
    assert_eq!(Kind::Templates.array_key(), "resourceTemplates");
}

proptest! {
    /// However the entries are cut into pages, the list is the same.
    #[test]
    fn any_cut_gives_the_same_list(items in proptest::collection::vec("[a-z]{0,5}", 0..30), size in 1..9_usize) {
        let now = Instant::now();
        let items: Vec<&str> = items.iter().map(String::as_str).collect();
        let chunks: Vec<_> = if items.is_empty() { vec![&[][..]] } else { items.chunks(size).collect() };
        let mut pager = asked(true, now);
        for (n, chunk) in chunks.iter().enumerate() {
            let cursor = (n + 1 < chunks.len()).then(|| format!("\"{n}\""));
            let outcome = pager.page(now, &page(chunk, cursor.as_deref()));
            if cursor.is_some() {
                prop_assert_eq!(outcome, PageOutcome::More);
                prop_assert!(pager.poll_request(now).is_some());
            } else {
                prop_assert_eq!(done(outcome), items.clone());
            }
        }
    }

    /// Whatever happens, at most one request is under way, a wish or a change is fetched in the end, and the last
    /// state wins.
    #[test]
    fn every_change_is_fetched_in_the_end(steps in proptest::collection::vec((0..5_u8, 0..6000_u64), 0..60)) {
        let mut now = Instant::now();
        let mut pager = asked(true, now);
        let (mut under_way, mut stale) = (true, true);
        for (step, wait) in steps {
            now += Duration::from_millis(wait);
            match step {
                0 => {
                    pager.invalidate(now);
                    stale = true;
                }
                1 if under_way => {
                    under_way = false;
                    if let PageOutcome::Done(_) = pager.page(now, &page(&["a"], None)) {
                        stale = pager.is_busy();
                    }
                }
                2 if under_way => {
                    under_way = false;
                    pager.failed(now, None);
                }
                _ => {
                    let request = pager.poll_request(now);
                    prop_assert!(request.is_none() || !under_way, "a second request");
                    under_way |= request.is_some();
                }
            }
            prop_assert!(!stale || pager.is_busy(), "a change was forgotten");
            prop_assert!(under_way || pager.deadline().is_some() == pager.is_busy());
        }
    }
}
