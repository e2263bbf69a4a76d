use std::collections::BTreeSet;
use std::time::Instant;

use super::*;
use crate::engine::outcome::{Exit, Intent, Loss, Reason, Resolution, ResolvedAs, SettledAs, Standing, State, no_mask};
use crate::runtime::inflight::Intents;

/// A test that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(30);

fn intent(id: OutcomeId, arguments: &str) -> Intent<'_> {
    Intent {
        id,
        time: unix_now(),
        server: "bank",
        tool: "pay",
        exposed: "bank__pay",
        host_request_id: "7",
        generation: 1,
        sequence: 2,
        digest: None,
        arguments: Some(arguments),
        repeat_of: None,
    }
}

fn loss() -> Loss {
    Loss { reason: Reason::ChildExited, exit: Some(Exit::Code(1)), at: unix_now() }
}

fn lose(intents: &mut Intents, arguments: &str) -> Row {
    let id = intents.fresh_id();
    intents.begin(&intent(id, arguments), None).unwrap();
    intents.lost(id, &loss()).unwrap()
}

fn row(arguments: &str) -> Row {
    lose(&mut Intents::disabled(), arguments)
}

/// The next event that `pick` takes, before the limit.
fn wait_for<T>(
    ledger: &mut Ledger,
    events: &mut mpsc::UnboundedReceiver<Event>,
    mut pick: impl FnMut(Event) -> Option<T>,
) -> T {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        match events.try_recv() {
            Ok(event) => {
                ledger.flush();
                if let Some(found) = pick(event) {
                    return found;
                }
            }
            Err(_) => std::thread::park_timeout(Duration::from_millis(1)),
        }
    }
    panic!("the event did not come");
}

fn wait_stored(ledger: &mut Ledger, events: &mut mpsc::UnboundedReceiver<Event>, ids: &[OutcomeId]) {
    let mut missing: BTreeSet<_> = ids.iter().copied().collect();
    if missing.is_empty() {
        return;
    }
    wait_for(ledger, events, |event| {
        if let Event::Stored(ids) = event {
            for id in ids {
                missing.remove(&id);
            }
        }
        missing.is_empty().then_some(())
    });
}

fn all(dir: &Path) -> Vec<Row> {
    Db::open(dir).unwrap().list(&Filter::default()).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_row_is_kept_with_all_that_becomes_known() {
    let dir = tempfile::tempdir().unwrap();
    let (mut ledger, mut events) = Ledger::open(dir.path(), KEEP_SETTLED).unwrap();
    wait_for(&mut ledger, &mut events, |event| (event == Event::Ready).then_some(()));
    let mut expected = row("{\"a\":1}");
    expected.repeat_of = Some(OutcomeId::from_random(1));
    let twin = Row { id: OutcomeId::from_random(2), ..expected.clone() };
    let id = expected.id;
    for row in [&expected, &expected, &twin] {
        assert!(ledger.insert(row.clone()));
    }
    let late = Settlement::new(SettledAs::ToolError, unix_now(), "{\"isError\":true}", &no_mask);
    ledger.settle(id, late.clone());
    ledger.settle(id, Settlement::new(SettledAs::Success, unix_now(), "{}", &no_mask));
    let at = unix_now();
    ledger.mark_refused(id, at);
    ledger.mark_refused(id, UnixMs(at.0 + 9));
    ledger.mark_repeat(id, UnixMs(at.0 + 1));
    let counts = ledger.counts();
    wait_stored(&mut ledger, &mut events, &[id, twin.id]);
    assert_eq!(counts.blocking_recv().unwrap(), BTreeMap::from([("bank".to_owned(), 1)]));
    let listed = ledger.list(Filter { limit: Some(1), states: vec![State::Settled], ..Filter::default() });
    expected.settlement = Some(late);
    expected.refused_at = Some(at);
    expected.repeated_at = Some(UnixMs(at.0 + 1));
    assert_eq!(listed.blocking_recv().unwrap(), [expected.clone()]);
    assert!(ledger.close(LIMIT));

    let mut db = Db::open(dir.path()).unwrap();
    assert_eq!(db.find(&twin.id.to_string()).unwrap().refused_at, Some(at), "one refusal counts for the same call");
    let resolution = Resolution { verdict: ResolvedAs::Done, note: "seen".into(), at };
    expected.resolution = Some(resolution.clone());
    assert_eq!(db.resolve(&id.to_string()[..14], &resolution).unwrap(), expected);
}

#[test]
fn nothing_is_opened_before_it_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut ledger, mut events) = Ledger::open(dir.path(), KEEP_SETTLED).unwrap();
    wait_for(&mut ledger, &mut events, |event| (event == Event::Ready).then_some(()));
    assert!(ledger.list(Filter::default()).blocking_recv().unwrap().is_empty());
    assert!(ledger.counts().blocking_recv().unwrap().is_empty());
    assert!(!dir.path().join(FILE).exists());
    let row = row("{}");
    ledger.insert(row.clone());
    assert_eq!(ledger.list(Filter::default()).blocking_recv().unwrap(), std::slice::from_ref(&row));
    // Where there is a file it is read at once.
    let (mut other, mut events) = Ledger::open(dir.path(), KEEP_SETTLED).unwrap();
    wait_for(&mut other, &mut events, |event| match event {
        Event::Rows(rows) => rows.iter().any(|told| told.id == row.id).then_some(()),
        _ => None,
    });
}

#[test]
fn others_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let [mut one, mut other] = [(); 2].map(|()| Ledger::open(dir.path(), KEEP_SETTLED).unwrap());
    wait_for(&mut other.0, &mut other.1, |event| (event == Event::Ready).then_some(()));
    let row = row("{}");
    one.0.insert(row.clone());
    wait_stored(&mut one.0, &mut one.1, &[row.id]);
    let mut told = |standing: Standing| {
        wait_for(&mut other.0, &mut other.1, |event| match event {
            Event::Rows(rows) => rows.iter().any(|told| told.id == row.id && told.standing == standing).then_some(()),
            _ => None,
        });
    };
    told(Standing::Unknown);
    let resolution = Resolution { verdict: ResolvedAs::Done, note: String::new(), at: unix_now() };
    Db::open(dir.path()).unwrap().resolve(&row.id.to_string(), &resolution).unwrap();
    told(Standing::Resolved);
}

#[test]
fn a_start_is_told_of_the_last_hour_only() {
    let dir = tempfile::tempdir().unwrap();
    let (fresh, old) = (row("1"), Row { lost_at: UnixMs(unix_now().0 - 3_700_000), ..row("2") });
    Db::open(dir.path()).unwrap().write(|change| [&fresh, &old].iter().try_for_each(|row| change.insert(row))).unwrap();
    let (mut ledger, mut events) = Ledger::open(dir.path(), KEEP_SETTLED).unwrap();
    let mut told = Vec::new();
    wait_for(&mut ledger, &mut events, |event| match event {
        Event::Rows(rows) => {
            told.extend(rows);
            None
        }
        other => (other == Event::Ready).then_some(()),
    });
    assert_eq!(told, [GuardRow::from(&fresh)]);
}

#[test]
fn more_rows_than_there_is_room_are_not_lost() {
    const ROWS: usize = 3_300;
    let dir = tempfile::tempdir().unwrap();
    // A file of a later version keeps the thread from its work, so that everything has to wait.
    Db::open(dir.path()).unwrap().connection.pragma_update(None, "user_version", 99).unwrap();
    let (mut ledger, mut events) = Ledger::open(dir.path(), KEEP_SETTLED).unwrap();
    let mut intents = Intents::open(dir.path(), unix_now()).unwrap();
    let large = format!("\"{}\"", "x".repeat(8_000));
    let mut kept = Vec::new();
    let mut no_room = Vec::new();
    for _ in 0..ROWS {
        let row = lose(&mut intents, &large);
        let id = row.id;
        if ledger.insert(row) { kept.push(id) } else { no_room.push(id) }
    }
    assert!(kept.len() > CHANNEL && !no_room.is_empty(), "{} {}", kept.len(), no_room.len());
    std::fs::remove_file(dir.path().join(FILE)).unwrap();
    wait_stored(&mut ledger, &mut events, &kept);
    for id in kept {
        intents.settle(id).unwrap();
    }
    assert!(ledger.close(LIMIT));
    drop(intents);
    let mut db = Db::open(dir.path()).unwrap();
    assert_eq!(db.adopt(dir.path()).unwrap(), no_room.len());
    let rows = db.list(&Filter::default()).unwrap();
    assert_eq!(rows.len(), ROWS);
    assert!(rows.iter().all(|row| row.reason == Reason::ChildExited));
}

#[test]
fn a_close_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let lock = std::fs::File::create(dir.path().join("ledger.lock")).unwrap();
    lock.lock().unwrap();
    let (mut ledger, _events) = Ledger::open(dir.path(), KEEP_SETTLED).unwrap();
    ledger.insert(row("{}"));
    let start = Instant::now();
    assert!(!ledger.close(Duration::from_millis(20)));
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_damaged_file_is_moved_aside() {
    let page = |fill: u8| vec![fill; 4096];
    for (name, damage) in [("junk", page(7)), ("text", b"this is no ledger".to_vec())] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), &damage).unwrap();
        std::fs::write(dir.path().join(format!("{FILE}-wal")), "a log").unwrap();
        let (mut ledger, mut events) = Ledger::open(dir.path(), KEEP_SETTLED).unwrap();
        let row = row("{}");
        ledger.insert(row.clone());
        wait_stored(&mut ledger, &mut events, &[row.id]);
        assert!(ledger.close(LIMIT));
        assert_eq!(all(dir.path()), [row], "{name}");
        let moved: Vec<_> = names(dir.path()).into_iter().filter(|name| name.contains(".damaged-")).collect();
        let file = moved.iter().find(|name| !name.ends_with("-wal")).unwrap();
        assert_eq!(std::fs::read(dir.path().join(file)).unwrap(), damage);
    }
}

#[test]
fn damage_inside_the_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = Db::open(dir.path()).unwrap();
    db.write(|change| (0..500).try_for_each(|n| change.insert(&row(&n.to_string())))).unwrap();
    drop(db);
    let path = dir.path().join(FILE);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 3 * 4096].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(all(dir.path()), []);
    assert!(names(dir.path()).iter().any(|name| name.starts_with("ledger.sqlite3.damaged-")));
}

#[cfg(unix)]
#[test]
fn without_shared_memory_there_is_a_rollback_journal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.sqlite3");
    // This way of locking has no shared memory, like some network file systems.
    let connection =
        rusqlite::Connection::open_with_flags_and_vfs(&path, rusqlite::OpenFlags::default(), c"unix-dotfile");
    let connection = connection.unwrap();
    db::set_journal(&connection).unwrap();
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete");
    connection.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
}

#[cfg(unix)]
#[test]
fn whoever_has_a_file_open_that_is_moved_goes_on_with_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let (mut ledger, mut events) = Ledger::open(dir.path(), KEEP_SETTLED).unwrap();
    let old = row("{}");
    ledger.insert(old.clone());
    wait_stored(&mut ledger, &mut events, &[old.id]);
    std::fs::rename(dir.path().join(FILE), dir.path().join("ledger.sqlite3.damaged-test")).unwrap();
    let row = row("{}");
    ledger.insert(row.clone());
    wait_stored(&mut ledger, &mut events, &[row.id]);
    assert_eq!(all(dir.path()), [row]);
}

#[test]
fn what_a_later_version_made_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    Db::open(dir.path()).unwrap().connection.pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(Db::open(dir.path()), Err(LedgerError::Newer { found: 99, .. })));
    let (mut ledger, _events) = Ledger::open(dir.path(), KEEP_SETTLED).unwrap();
    assert!(ledger.insert(row("{}")), "it costs no call");
    drop(ledger);
    assert!(names(dir.path()).iter().all(|name| !name.contains("damaged")));
}

#[test]
fn only_what_is_known_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let rows: Vec<_> = ["1", "2", "3", "4"].map(row).into();
    let mut db = Db::open(dir.path()).unwrap();
    let late = |at: u64| Settlement::new(SettledAs::Success, UnixMs(at), "{}", &no_mask);
    db.write(|change| {
        rows.iter().try_for_each(|row| change.insert(row))?;
        change.settle(rows[0].id, &late(10))?;
        change.settle(rows[1].id, &late(10))?;
        change.resolve(rows[1].id, &Resolution { verdict: ResolvedAs::Done, note: String::new(), at: UnixMs(30) })?;
        change.resolve(rows[2].id, &Resolution { verdict: ResolvedAs::Done, note: String::new(), at: UnixMs(10) })
    })
    .unwrap();
    assert_eq!(db.write(|change| change.prune(UnixMs(20))).unwrap(), 2);
    let left: BTreeSet<_> = db.list(&Filter::default()).unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(left, BTreeSet::from([rows[1].id, rows[3].id]));
}

#[test]
fn eight_adopters_store_each_row_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = BTreeSet::new();
    for _ in 0..20 {
        let mut intents = Intents::open(dir.path(), unix_now()).unwrap();
        for n in 0..10 {
            let id = intents.fresh_id();
            intents.begin(&intent(id, &n.to_string()), None).unwrap();
            if n % 2 == 0 {
                intents.settle(id).unwrap();
            } else {
                expected.insert(id);
            }
        }
    }
    let start = std::sync::Barrier::new(8);
    let adopted: usize = std::thread::scope(|scope| {
        let adopter = || {
            let mut db = Db::open(dir.path()).unwrap();
            start.wait();
            db.adopt(dir.path()).unwrap()
        };
        let adopters = [(); 8].map(|()| scope.spawn(adopter));
        adopters.into_iter().map(|adopter| adopter.join().unwrap()).sum()
    });
    assert!(adopted >= expected.len());
    let rows = all(dir.path());
    assert_eq!(rows.len(), 100);
    assert_eq!(rows.iter().map(|row| row.id).collect::<BTreeSet<_>>(), expected);
    assert!(rows.iter().all(|row| row.reason == Reason::ProxyKilled));
    assert!(names(dir.path()).iter().all(|name| !name.starts_with("inflight-")));
}

#[test]
fn a_row_of_the_ledger_is_not_changed_by_the_file_of_the_dead() {
    let dir = tempfile::tempdir().unwrap();
    let mut intents = Intents::open(dir.path(), unix_now()).unwrap();
    let stored = lose(&mut intents, "{}");
    let mut db = Db::open(dir.path()).unwrap();
    db.write(|change| change.insert(&stored)).unwrap();
    let late = Settlement::new(SettledAs::Success, unix_now(), "{}", &no_mask);
    db.write(|change| change.settle(stored.id, &late)).unwrap();
    drop(intents);
    db.adopt(dir.path()).unwrap();
    assert_eq!(db.list(&Filter::default()).unwrap(), [Row { settlement: Some(late), ..stored }]);
}
