//! Faults that the schedules and the exploration found, each as the shortest script that shows it.

use std::time::Duration;

use mcp_proxy::engine::child::Conn;
use mcp_proxy::engine::hub::Command;

use super::act::Act;
use super::child::How;
use super::config::{Common, Table, known};
use super::explore::ready;
use super::host::Form;
use super::schedule::{finish, settle};
use super::world::{Amount, World};

fn order(command: Command) -> Act {
    Act::Order(command, "a".to_owned(), false)
}

fn call(what: &'static str) -> Act {
    Act::Call("a".to_owned(), Form::plain(what, 1))
}

/// A world of the server `a` at its first moment.
fn fresh(change: impl FnOnce(&mut Table)) -> World {
    let mut table = Table::new("a");
    change(&mut table);
    World::new(vec![table], Common::default(), vec![None], 1)
}

fn conn(world: &World, key: &str) -> Conn {
    world.procs.values().find(|proc| proc.key == key).expect("it lives").conn
}

/// Everything up to the answer, which the child does not give yet.
fn reach(world: &mut World, key: &str) -> Conn {
    let conn = conn(world, key);
    world.apply(&Act::Write(conn, Amount::All));
    while world.procs[&conn].has_line() {
        world.apply(&Act::ChildReads(conn));
    }
    conn
}

#[test]
fn a_server_that_is_stopped_during_its_start_is_stopped() {
    let mut world = fresh(|_| {});
    world.apply(&order(Command::Stop));
    settle(&mut world);
    assert!(world.procs.is_empty(), "{:?}", world.procs);
}

#[test]
fn a_start_that_fails_after_a_stop_starts_nothing() {
    let mut world = fresh(|_| {});
    world.apply(&order(Command::Stop));
    let conn = conn(&world, "a");
    world.apply(&Act::NotSpawned(conn, false));
    assert_eq!(world.hub.state_of("a"), Some("stopped"));
    assert_eq!(world.hub.deadline(), None);
}

#[test]
fn a_stop_ends_a_restart_that_is_under_way() {
    let mut world = ready();
    world.apply(&order(Command::Restart));
    world.apply(&order(Command::Stop));
    let old = conn(&world, "a");
    world.apply(&Act::Reaped(old));
    assert!(world.procs.values().all(|proc| proc.key != "a"), "it was started again");
    assert_eq!(world.hub.state_of("a"), Some("stopped"));
}

#[test]
fn the_names_of_a_stopped_server_stay_away() {
    let mut world = ready();
    world.apply(&call("call"));
    let conn = reach(&mut world, "a");
    world.apply(&order(Command::Stop));
    world.apply(&Act::Changes(conn));
    world.apply(&Act::Deliver(conn));
    world.tick();
    world.apply(&Act::Write(conn, Amount::All));
    world.apply(&Act::ChildReads(conn));
    let at = world.procs[&conn].todo.len() - 1;
    world.apply(&Act::Answers(conn, at, How::Well));
    world.apply(&Act::Deliver(conn));
    let shown = |world: &World| world.list_now("tools").expect("it need not wait").contains("a__");
    assert!(!shown(&world), "a list that came during the drain brought them back");
    settle(&mut world);
    let mut tables = world.tables.clone();
    tables[1].filtered = true;
    world.apply(&Act::Reload(tables));
    assert!(!shown(&world), "a reload brought them back");
    world.apply(&order(Command::Start));
    assert!(shown(&world));
    finish(&mut world, true);
}

#[test]
fn a_reload_does_not_start_what_a_person_stopped() {
    let mut world = ready();
    world.apply(&order(Command::Stop));
    settle(&mut world);
    let mut tables = world.tables.clone();
    tables[0].launch += 1;
    world.apply(&Act::Reload(tables));
    assert_eq!(world.hub.state_of("a"), Some("stopped"));
}

#[test]
fn initialize_is_answered_as_itself_when_the_end_comes_first() {
    let mut world = fresh(|_| {});
    world.apply(&Act::Initialize(0));
    // In the order of the ids it stands before the handshake's.
    world.apply(&Act::Call("a".to_owned(), Form { text_id: true, ..Form::plain("call", 1) }));
    world.apply(&Act::Stop);
    finish(&mut world, true);
}

#[test]
fn a_pause_before_a_restart_does_not_keep_the_end_awake() {
    let mut world = ready();
    let conn = conn(&world, "a");
    world.apply(&Act::Call("b".to_owned(), Form::plain("call", 1)));
    world.apply(&Act::Dies(conn, 1));
    world.apply(&Act::Gone(conn));
    world.apply(&Act::Eof);
    // The pause is over within the second that open calls have; the tick looks that nothing stays due.
    world.tick();
    finish(&mut world, false);
}

#[test]
fn a_question_that_was_taken_back_early_is_never_asked() {
    let mut world = fresh(|_| {});
    world.apply(&Act::Initialize(0));
    settle(&mut world);
    let conn = conn(&world, "a");
    world.apply(&Act::Asks(conn, 0));
    world.apply(&Act::TakesBack(conn, 0));
    world.apply(&Act::Deliver(conn));
    world.apply(&Act::Deliver(conn));
    world.apply(&Act::Initialized);
    settle(&mut world);
    assert_eq!(world.watch.questions[0].our, None);
    finish(&mut world, true);
}

#[test]
fn our_own_requests_do_not_fill_max_pending() {
    let mut world = fresh(|table| table.max_pending = 1);
    world.apply(&Act::Initialize(0));
    world.apply(&call("call"));
    settle(&mut world);
    assert!(world.watch.requests.iter().all(|request| request.delivered && !request.never));
}

#[test]
fn calls_of_unknown_names_count_under_max_pending() {
    let mut world = fresh(|table| table.max_pending = 1);
    world.apply(&Act::Initialize(0));
    world.apply(&call("call"));
    world.apply(&call("look"));
    assert!(world.watch.requests[2].never, "the second one is busy");
    finish(&mut world, true);
}

#[test]
fn a_name_that_can_not_come_is_refused_when_that_is_known() {
    let mut world = fresh(|_| {});
    world.apply(&Act::Initialize(0));
    world.apply(&call("prompt"));
    let began = world.now;
    settle(&mut world);
    assert!(world.watch.requests[1].never && world.now == began, "it waits for what the server does not have");
}

#[test]
fn a_person_who_says_nothing_is_not_waited_for_without_end() {
    let mut world = ready();
    world.apply(&call("call"));
    let old = reach(&mut world, "a");
    world.apply(&Act::Dies(old, 1));
    world.apply(&Act::Gone(old));
    world.apply(&Act::Reaped(old));
    world.apply(&Act::HostReads(Amount::All));
    world.tick();
    for _ in 0..40 {
        if world.hub.state_of("a") == Some("ready") {
            break;
        }
        settle(&mut world);
        world.tick();
    }
    settle(&mut world);
    world.apply(&call("call"));
    assert_eq!(world.watch.stats.of("guard asked"), 1);
    let began = world.now;
    while !world.watch.open.is_empty() {
        assert!(world.tick(), "it waits for ever");
    }
    assert!((world.now - began).as_secs() <= 20);
    finish(&mut world, true);
}

#[test]
fn a_child_that_refuses_every_revision_is_given_up() {
    let mut world = fresh(|_| {});
    world.apply(&Act::Initialize(0));
    let conn = conn(&world, "a");
    world.apply(&Act::Spawned(conn));
    for _ in 0..10 {
        if !world.can_write(conn) {
            return;
        }
        reach(&mut world, "a");
        world.apply(&Act::Answers(conn, 0, How::OtherRevision));
        world.apply(&Act::Deliver(conn));
    }
    panic!("it is asked again and again");
}

/// Lets the process of `a`, which has just been started, read its greeting; tells the method, and lets it end on it.
fn greeted_and_gone(world: &mut World) -> String {
    let conn = conn(world, "a");
    world.apply(&Act::Spawned(conn));
    reach(world, "a");
    let method = world.procs[&conn].todo[0].method.clone();
    world.apply(&Act::Dies(conn, 1));
    world.apply(&Act::Gone(conn));
    world.apply(&Act::Reaped(conn));
    method
}

/// Waits for the restart of `a`, which has to come after a pause.
fn restarted(world: &mut World) {
    assert_eq!(world.hub.state_of("a"), Some("backoff"));
    while world.procs.is_empty() {
        assert!(world.tick(), "it is never started again");
    }
}

#[test]
fn a_server_that_ends_on_its_greeting_is_greeted_in_the_other_way_once() {
    let mut world = fresh(|_| {});
    world.apply(&Act::Initialize(0));
    assert_eq!(greeted_and_gone(&mut world), "initialize");
    // At once, for this was no crash.
    assert_eq!(greeted_and_gone(&mut world), "server/discover");
    restarted(&mut world);
    assert_eq!(greeted_and_gone(&mut world), "initialize");
    restarted(&mut world);
    assert_eq!(greeted_and_gone(&mut world), "initialize");
    assert_eq!(world.hub.state_of("a"), Some("failed"), "three attempts were allowed");
    finish(&mut world, true);
}

#[test]
fn the_end_of_a_server_that_is_known_to_be_legacy_is_a_crash() {
    let mut world = World::new(vec![Table::new("a")], Common::default(), vec![Some(known(1))], 1);
    world.apply(&Act::Initialize(0));
    assert_eq!(greeted_and_gone(&mut world), "initialize");
    restarted(&mut world);
    assert_eq!(greeted_and_gone(&mut world), "initialize");
    restarted(&mut world);
    // It may have been replaced by one that is modern; that start counts, too.
    assert_eq!(greeted_and_gone(&mut world), "server/discover");
    assert_eq!(world.hub.state_of("a"), Some("failed"), "three attempts were allowed");
    finish(&mut world, true);
}

#[test]
fn a_server_that_was_ready_and_fails_at_its_next_start_is_greeted_as_before() {
    let mut world = ready();
    let old = conn(&world, "a");
    world.apply(&Act::Dies(old, 1));
    world.apply(&Act::Gone(old));
    world.apply(&Act::Reaped(old));
    while world.procs.len() < 2 {
        assert!(world.tick(), "it is never started again");
    }
    assert_eq!(greeted_and_gone(&mut world), "initialize");
    assert_eq!(world.hub.state_of("a"), Some("backoff"), "that is a crash, too");
    finish(&mut world, true);
}

#[test]
fn what_waits_for_children_in_all_is_bounded() {
    let mut world = ready();
    world.hub.set_room(400);
    let of = |key: &str| Act::Call(key.to_owned(), Form::plain("call", 1));
    let first = world.watch.requests.len();
    let refused = |world: &World| world.watch.requests[first..].iter().filter(|request| request.never).count();
    for _ in 0..8 {
        world.apply(&of("a"));
    }
    let busy = refused(&world);
    assert!((1..8).contains(&busy), "{busy} of 8 calls are busy");
    assert!(world.watch.stats.of("unavailable") > 0);
    // The bound is that of all: another child has no room either, and an answer is told at once.
    world.apply(&of("b"));
    assert_eq!(refused(&world), busy + 1);
    settle(&mut world);
    world.apply(&of("b"));
    settle(&mut world);
    assert_eq!(refused(&world), busy + 1, "there is room again");
    assert!(world.watch.requests.iter().all(|request| request.answers == 1));
    finish(&mut world, true);
}

#[test]
fn what_waits_for_the_host_in_all_is_bounded() {
    let mut world = ready();
    world.hub.set_room(400);
    let conns = ["a", "b"].map(|key| conn(&world, key));
    let mut calls = 0;
    while world.hub.wants_host() {
        assert!(calls < 20, "answers wait without bound");
        world.apply(&Act::Call(["a", "b"][calls % 2].to_owned(), Form::plain("call", 1)));
        let conn = reach(&mut world, ["a", "b"][calls % 2]);
        world.apply(&Act::Answers(conn, 0, How::Well));
        world.apply(&Act::Deliver(conn));
        calls += 1;
    }
    assert!(calls > 1 && !world.hub.has_room(0));
    assert!(conns.iter().all(|conn| !world.hub.wants_child(*conn)), "no child is read on");
    world.apply(&Act::HostReads(Amount::All));
    assert!(world.hub.wants_host() && conns.iter().all(|conn| world.hub.wants_child(*conn)));
    finish(&mut world, true);
}

#[test]
fn a_clock_that_jumps_ends_what_is_due_and_nothing_else() {
    let mut world = ready();
    world.apply(&call("call"));
    reach(&mut world, "a");
    let lives = world.procs.len();
    world.apply(&Act::Wait(Duration::from_secs(30 * 24 * 3600)));
    assert!(world.watch.open.is_empty(), "its time is long over");
    settle(&mut world);
    assert_eq!((world.hub.state_of("a"), world.hub.state_of("b")), (Some("ready"), Some("ready")));
    // And back, behind the moment at which it became ready.
    world.now = world.base;
    world.apply(&Act::Call("b".to_owned(), Form::plain("call", 2)));
    world.apply(&Act::List("tools"));
    settle(&mut world);
    assert!(world.watch.open.is_empty());
    // Also between the end of a life and its next one.
    let old = conn(&world, "a");
    world.apply(&Act::Dies(old, 1));
    world.apply(&Act::Gone(old));
    world.apply(&Act::Reaped(old));
    world.apply(&Act::Wait(Duration::from_secs(365 * 24 * 3600)));
    settle(&mut world);
    assert_eq!((world.hub.state_of("a"), world.procs.len()), (Some("ready"), lives));
    world.apply(&Act::Call("a".to_owned(), Form::plain("look", 3)));
    settle(&mut world);
    assert!(world.watch.open.is_empty());
    finish(&mut world, true);
}

/// A world whose host has arrays, with the child of one call.
fn arrays() -> World {
    let mut world = fresh(|_| {});
    world.apply(&Act::Initialize(1));
    settle(&mut world);
    world.apply(&Act::Initialized);
    settle(&mut world);
    world
}

#[test]
fn a_call_of_an_array_is_settled_when_the_array_was_accepted() {
    let mut world = arrays();
    let call = ("a".to_owned(), Form::plain("call", 1));
    world.apply(&Act::Batch(vec![call]));
    let conn = reach(&mut world, "a");
    world.apply(&Act::Answers(conn, 0, How::Well));
    world.apply(&Act::Deliver(conn));
    world.apply(&Act::HostReads(Amount::One));
    finish(&mut world, true);
}

#[test]
fn an_id_of_an_array_is_in_use_until_the_array_is_sent() {
    let mut world = arrays();
    let call = |argument| ("a".to_owned(), Form::plain("call", argument));
    world.apply(&Act::Batch(vec![call(1), call(2)]));
    let conn = reach(&mut world, "a");
    world.apply(&Act::Answers(conn, 0, How::Well));
    world.apply(&Act::Deliver(conn));
    let first = world.watch.requests[1].id.clone();
    world.apply(&Act::Again(first));
    finish(&mut world, true);
}

#[test]
fn what_changed_before_initialized_is_announced_only_if_it_is_news() {
    let mut world = fresh(|_| {});
    world.apply(&Act::Initialize(0));
    settle(&mut world);
    world.apply(&Act::List("tools"));
    let conn = conn(&world, "a");
    world.apply(&Act::Changes(conn));
    settle(&mut world);
    while world.tick() {
        settle(&mut world);
    }
    // The host lists by itself: there is nothing to tell.
    world.apply(&Act::List("tools"));
    world.apply(&Act::Initialized);
    finish(&mut world, true);
}

#[test]
fn what_is_given_back_after_the_hosts_end_goes_to_no_server_that_is_over() {
    let mut world = ready();
    world.apply(&call("call"));
    world.apply(&Act::Call("b".to_owned(), Form::plain("call", 2)));
    reach(&mut world, "b");
    world.apply(&Act::Eof);
    let old = conn(&world, "a");
    world.apply(&Act::Dies(old, 3));
    world.apply(&Act::Gone(old));
    // The rows of earlier lives are known only now.
    world.hub.handle_rows_known(world.now);
    world.apply(&Act::Reaped(old));
    finish(&mut world, true);
}

#[test]
fn a_call_to_a_server_whose_output_has_ended_waits_for_the_next_life() {
    let mut world = ready();
    let old = conn(&world, "a");
    world.hub.handle_output_ended(old);
    world.apply(&call("call"));
    world.apply(&Act::Closes(old));
    world.apply(&Act::Gone(old));
    settle(&mut world);
    while world.tick() {
        settle(&mut world);
    }
    let request = world.watch.requests.last().expect("the call");
    let ran_in = request.started.map(|conn| conn.generation);
    assert_eq!((&request.told, ran_in, request.executed), (&Some((0, String::new())), Some(2), 1), "{request:?}");
    finish(&mut world, true);
}
