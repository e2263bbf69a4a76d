use std::borrow::Cow;

use super::*;
use crate::engine::outcome::{Digest, Digester, Exit, Reason};

const NOW: UnixMs = UnixMs(1_800_000_000_000);

fn intent(id: OutcomeId, arguments: Option<&str>) -> Intent<'_> {
    Intent {
        id,
        time: NOW,
        server: "bank",
        tool: "pay",
        exposed: "bank__pay",
        host_request_id: "\"7\"",
        generation: 3,
        sequence: 17,
        digest: None,
        arguments,
        repeat_of: Some(OutcomeId::from_random(9)),
    }
}

fn digest(arguments: Option<&str>) -> Digest {
    Digester::default().digest("bank", "pay", arguments.map(str::as_bytes))
}

fn loss(reason: Reason) -> Loss {
    Loss { reason, exit: Some(Exit::Signal("SIGKILL".into())), at: UnixMs(NOW.0 + 5) }
}

fn begin(intents: &mut Intents, arguments: Option<&str>) -> OutcomeId {
    let id = intents.fresh_id();
    intents.begin(&intent(id, arguments), None).unwrap();
    id
}

fn mask(text: &str) -> Cow<'_, str> {
    Cow::Owned(text.replace("s3cret", "***"))
}

/// What an adopter would find if the process died now.
fn on_disk(intents: &Intents) -> Vec<Row> {
    open_rows(&std::fs::read(intents.path().unwrap()).unwrap(), NOW)
}

#[test]
fn an_open_call_is_on_disk_until_it_is_settled() {
    let dir = tempfile::tempdir().unwrap();
    let mut intents = Intents::open(dir.path(), NOW).unwrap();
    let text = "{\"to\":\"a\\\"b\",\n \"sum\":1}";
    let (first, second) = (begin(&mut intents, Some(text)), begin(&mut intents, None));
    let rows = on_disk(&intents);
    assert_eq!(rows.len(), 2);
    let row = rows.iter().find(|row| row.id == first).unwrap();
    assert_eq!(row.arguments.as_ref().unwrap().text, text);
    assert_eq!((row.server.as_str(), row.tool.as_str(), row.exposed.as_str()), ("bank", "pay", "bank__pay"));
    assert_eq!((row.generation, row.sequence, row.host_request_id.as_str()), (3, 17, "\"7\""));
    assert_eq!((row.reason, row.pid, row.lost_at), (Reason::ProxyKilled, std::process::id(), NOW));
    assert_eq!(row.repeat_of, Some(OutcomeId::from_random(9)));
    assert_eq!(row.digest, digest(Some(text)));
    assert_eq!(rows.iter().find(|row| row.id == second).unwrap().digest, digest(None));
    intents.settle(first).unwrap();
    intents.settle(first).unwrap();
    assert_eq!(on_disk(&intents).iter().map(|row| row.id).collect::<Vec<_>>(), [second]);
    intents.settle(second).unwrap();
    assert_eq!((on_disk(&intents), intents.open_count()), (vec![], 0));
}

#[test]
fn a_lost_call_has_one_row_and_its_reason_survives() {
    let dir = tempfile::tempdir().unwrap();
    let mut intents = Intents::open(dir.path(), NOW).unwrap();
    let id = begin(&mut intents, Some("{}"));
    let row = intents.lost(id, &loss(Reason::ChildExited)).unwrap();
    assert_eq!(
        (row.reason, row.exit.clone(), row.lost_at.0),
        (Reason::ChildExited, loss(Reason::Timeout).exit, NOW.0 + 5)
    );
    assert_eq!(intents.lost(id, &loss(Reason::Timeout)), None);
    assert_eq!(on_disk(&intents), [row]);
    intents.settle(id).unwrap();
    assert_eq!(on_disk(&intents), []);
    assert_eq!(intents.lost(id, &loss(Reason::Timeout)), None);
}

#[test]
fn records_are_bounded_and_masked() {
    let dir = tempfile::tempdir().unwrap();
    let mut intents = Intents::open(dir.path(), NOW).unwrap();
    for text in [
        format!("{{\"a\":\"{}\"}}", "x".repeat(100_000)),
        format!("[{}1]", "\"\\u0001\",".repeat(1_100)),
        "\t".repeat(8_000),
        "\u{1}".repeat(8_000),
    ] {
        let long = "\u{1}".repeat(5_000);
        let before = std::fs::metadata(intents.path().unwrap()).unwrap().len();
        let id = intents.fresh_id();
        let intent = Intent { tool: &long, exposed: &long, host_request_id: &long, ..intent(id, Some(&text)) };
        let digest = Digester::default().digest("bank", &long, Some(text.as_bytes()));
        intents.begin(&intent, None).unwrap();
        let written = std::fs::metadata(intents.path().unwrap()).unwrap().len() - before;
        assert!(written <= RECORD_BOUND as u64, "{written}");
        let row = intents.lost(id, &loss(Reason::Timeout)).unwrap();
        assert!(row.arguments.is_none_or(|kept| kept.length == text.len() as u64));
        assert_eq!(row.digest, digest, "of the whole, however little of it is kept");
    }
    let id = intents.fresh_id();
    intents.begin(&intent(id, Some("{\"a\":\"s3cret\"}")), Some(&mask)).unwrap();
    assert!(!std::fs::read_to_string(intents.path().unwrap()).unwrap().contains("s3cret"));
    let row = on_disk(&intents).into_iter().find(|row| row.id == id).unwrap();
    assert_eq!(row.arguments.unwrap().text, "{\"a\":\"***\"}");
    assert_eq!(row.digest, digest(Some("{\"a\":\"s3cret\"}")), "of what was sent");
}

#[test]
fn the_file_is_cut_back_when_nothing_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let mut intents = Intents::open(dir.path(), NOW).unwrap();
    let text = format!("\"{}\"", "x".repeat(7_000));
    let size = |intents: &Intents| std::fs::metadata(intents.path().unwrap()).unwrap().len();
    let slow = begin(&mut intents, None);
    while size(&intents) <= CUT_ABOVE {
        let id = begin(&mut intents, Some(&text));
        intents.settle(id).unwrap();
    }
    assert_eq!(on_disk(&intents)[0].id, slow);
    intents.settle(slow).unwrap();
    assert!(size(&intents) < 100, "{}", size(&intents));
    let id = begin(&mut intents, None);
    assert_eq!(on_disk(&intents)[0].id, id);
}

#[test]
fn with_nothing_open_the_file_is_written_over_from_its_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut intents = Intents::open(dir.path(), NOW).unwrap();
    let mut sizes = std::collections::BTreeSet::new();
    // Of all lengths, so that what is left of older lines begins anywhere in them; some at once, in one write.
    for length in (0..300).chain((0..300).rev()) {
        let text = format!("{{\"a\":\"{}\",\"b\":[{{\"settle\":\"{{\"}}]}}", "x".repeat(length));
        if length % 3 == 0 {
            intents.hold();
        }
        let (first, second) = (begin(&mut intents, Some(&text)), begin(&mut intents, None));
        intents.flush().unwrap();
        let mut both = [first, second];
        both.sort();
        assert_eq!(on_disk(&intents).iter().map(|row| row.id).collect::<Vec<_>>(), both);
        intents.settle(first).unwrap();
        let row = intents.lost(second, &loss(Reason::Timeout)).unwrap();
        assert_eq!(on_disk(&intents), [row]);
        intents.settle(second).unwrap();
        assert_eq!(on_disk(&intents), []);
        sizes.insert(std::fs::metadata(intents.path().unwrap()).unwrap().len());
    }
    assert!(*sizes.last().unwrap() < 2_000, "{sizes:?}");
}

/// Where the process ended in the middle of a write over an older line, both may have the same form.
#[test]
fn a_line_that_was_torn_over_an_older_one_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut intents = Intents::open(dir.path(), NOW).unwrap();
    let old = begin(&mut intents, Some("{\"sum\":1}"));
    intents.settle(old).unwrap();
    let before = std::fs::read(intents.path().unwrap()).unwrap();
    let new = begin(&mut intents, Some("{\"sum\":2}"));
    let after = std::fs::read(intents.path().unwrap()).unwrap();
    assert_eq!(before.len(), after.len());
    let last = after.iter().zip(&before).rposition(|(new, old)| new != old).unwrap();
    for torn in 0..after.len() {
        let text = [&after[..torn], &before[torn..]].concat();
        let rows = open_rows(&text, NOW);
        let whole = torn > last;
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), if whole { vec![new] } else { vec![] }, "{torn}");
    }
}

#[test]
fn a_file_of_the_first_layout_is_read() {
    let text = br#"{"inflight":1,"pid":17,"at":5}
{"begin":{"id":"u-0000000000001","digest":"00112233445566778899aabbccddeeff","server":"bank","tool":"pay","exposed":"bank__pay","host":"7","at":6,"generation":1,"sequence":2,"arguments":"{\"a\":1}"}}
{"begin":{"id":"u-0000000000002","digest":"00112233445566778899aabbccddeeff","server":"bank","tool":"pay","exposed":"bank__pay","host":"8","at":7,"generation":1,"sequence":3}}
{"settle":"u-0000000000002"}
"#;
    let rows = open_rows(text, NOW);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].pid, rows[0].arguments.as_ref().unwrap().text.as_str()), (17, "{\"a\":1}"));
    assert_eq!(rows[0].digest.to_string(), "00112233445566778899aabbccddeeff");
}

#[test]
fn the_file_is_rewritten_when_something_is_always_open() {
    let dir = tempfile::tempdir().unwrap();
    let mut intents = Intents::open(dir.path(), NOW).unwrap();
    let first_path = intents.path().unwrap().to_owned();
    let text = format!("\"{}\"", "x".repeat(7_000));
    let (slow, lost) = (begin(&mut intents, Some("{\"slow\":1}")), begin(&mut intents, None));
    let row = intents.lost(lost, &loss(Reason::Timeout)).unwrap();
    for _ in 0..3_000 {
        let id = begin(&mut intents, Some(&text));
        intents.settle(id).unwrap();
    }
    assert_ne!(intents.path().unwrap(), first_path);
    assert!(!first_path.exists());
    assert!(std::fs::metadata(intents.path().unwrap()).unwrap().len() < REWRITE_ABOVE + 20_000);
    let rows = on_disk(&intents);
    assert_eq!(rows.len(), 2);
    assert!(rows.contains(&row));
    let row = intents.lost(slow, &loss(Reason::ChildExited)).unwrap();
    assert_eq!(row.arguments.unwrap().text, "{\"slow\":1}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn only_the_files_of_the_dead_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let mut intents = Intents::open(dir.path(), NOW).unwrap();
    let id = begin(&mut intents, None);
    assert!(Orphan::find(dir.path()).unwrap().is_empty());
    drop(intents);
    std::fs::write(dir.path().join("inflight-notes.txt"), "mine").unwrap();
    let mut found = Orphan::find(dir.path()).unwrap();
    assert_eq!(found.len(), 1);
    assert!(Orphan::find(dir.path()).unwrap().is_empty(), "taken over by one");
    let mut orphan = found.remove(0);
    assert_eq!(orphan.rows(NOW).unwrap()[0].id, id);
    orphan.remove();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);

    drop(Intents::open(dir.path(), NOW).unwrap());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "an idle process leaves nothing");
}

#[test]
fn torn_and_strange_lines_cost_only_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let mut intents = Intents::open(dir.path(), NOW).unwrap();
    let (first, second) = (begin(&mut intents, Some("{\"n\":1}")), begin(&mut intents, Some("{\"n\":2}")));
    let text = std::fs::read(intents.path().unwrap()).unwrap();
    let second_at = text.len() - text.split_inclusive(|&byte| byte == b'\n').next_back().unwrap().len();
    let mut both = vec![first, second];
    both.sort();
    for end in second_at..=text.len() {
        let expected = if end == text.len() { both.clone() } else { vec![first] };
        assert_eq!(open_rows(&text[..end], NOW).iter().map(|row| row.id).collect::<Vec<_>>(), expected);
    }
    let mut strange = b"junk\n{\"begin\":{\"id\":\"x\"}}\n\xff\xfe\n{}\n{\"later\":{\"version\":2}}\n".to_vec();
    strange.extend_from_slice(&text);
    assert_eq!(open_rows(&strange, NOW).len(), 2);
}

#[test]
fn without_a_file_rows_are_made_all_the_same() {
    let mut intents = Intents::disabled();
    let id = begin(&mut intents, Some("[1]"));
    let row = intents.lost(id, &loss(Reason::Timeout)).unwrap();
    assert_eq!((row.id, row.arguments.unwrap().text.as_str()), (id, "[1]"));
    intents.settle(id).unwrap();
    assert_eq!(intents.open_count(), 0);

    let dir = tempfile::tempdir().unwrap();
    let in_the_way = dir.path().join("file");
    std::fs::write(&in_the_way, "").unwrap();
    assert!(Intents::open(&in_the_way, NOW).is_err());
}

/// What may happen to the file, in any order.
#[derive(Clone, Debug)]
enum Deed {
    Hold,
    Flush,
    Begin(usize),
    Settle(usize),
    Lost(usize),
}

fn deeds() -> impl proptest::strategy::Strategy<Value = Vec<Deed>> {
    use proptest::prelude::*;
    let deed = prop_oneof![
        2 => Just(Deed::Hold),
        3 => Just(Deed::Flush),
        4 => (0_usize..400).prop_map(Deed::Begin),
        6 => any::<usize>().prop_map(Deed::Settle),
        1 => any::<usize>().prop_map(Deed::Lost),
    ];
    prop::collection::vec(deed, 1..120)
}

proptest::proptest! {
    /// Whatever was begun, settled and lost before, and in how many writes: an adopter finds what is open, and no more.
    #[test]
    fn an_adopter_finds_what_is_open(deeds in deeds()) {
        let dir = tempfile::tempdir().unwrap();
        let mut intents = Intents::open(dir.path(), NOW).unwrap();
        let (mut open, mut holds) = (Vec::new(), false);
        for deed in deeds {
            match deed {
                Deed::Hold => {
                    intents.hold();
                    holds = true;
                }
                Deed::Flush => {
                    intents.flush().unwrap();
                    holds = false;
                }
                Deed::Begin(size) => open.push(begin(&mut intents, Some(&format!("\"{}\"", "x".repeat(size))))),
                Deed::Settle(at) if !open.is_empty() => {
                    let id = open.swap_remove(at % open.len());
                    intents.settle(id).unwrap();
                }
                Deed::Lost(at) if !open.is_empty() => {
                    intents.lost(open[at % open.len()], &loss(Reason::ChildExited));
                }
                Deed::Settle(_) | Deed::Lost(_) => {}
            }
            if !holds {
                let found: std::collections::BTreeSet<OutcomeId> = on_disk(&intents).iter().map(|row| row.id).collect();
                proptest::prop_assert_eq!(found, open.iter().copied().collect());
            }
        }
    }
}
