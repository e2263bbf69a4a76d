//! Small worlds, explored over every order in which things can happen, to the end of each.
//!
//! Bounds: two children that are ready (or none, for the start), two requests, and of each fault only as many as the
//! world allows. The host reads at once, children answer well or not at all, and a write takes one byte or everything.

use std::collections::{BTreeSet, HashSet};
use std::time::Instant;

use mcp_proxy::engine::hub::Command;

use super::act::Act;
use super::child::{How, Stage};
use super::config::{Common, Table};
use super::host::Form;
use super::modern::Back;
use super::schedule::{finish, settle};
use super::world::{Amount, World};

/// What may still happen in a world.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Left {
    /// Requests of the host, in this order.
    host: Vec<Act>,
    cancels: u8,
    crashes: u8,
    ticks: u8,
    changes: u8,
    failed_spawns: u8,
    silences: u8,
    /// Questions of a child while a call is with it.
    asks: u8,
    /// Questions for roots of a child while none is.
    asks_for_roots: u8,
    takes_back: u8,
    /// Retries of a modern host, of any round.
    retries: u8,
    /// Orders, reloads or the end, in this order.
    orders: Vec<Act>,
    /// Writes may stop after one byte.
    cuts: bool,
    /// What the machine can't tell apart is one step; see [`happens`].
    coarse: bool,
}

/// States of one world; more would be a world that is too large to be explored in a test.
const MOST: usize = 60_000;

pub fn ready() -> World {
    let mut world = World::new(vec![Table::new("a"), Table::new("b")], Common::default(), vec![None, None], 1);
    world.apply(&Act::Initialize(0));
    settle(&mut world);
    world.apply(&Act::Initialized);
    world.apply(&Act::List("tools"));
    at_rest(world)
}

/// The world when all that was begun in it is done.
fn at_rest(mut world: World) -> World {
    settle(&mut world);
    while world.tick() {
        settle(&mut world);
    }
    assert!(world.hub.open_work().is_empty());
    world
}

/// A modern host before one legacy child that is ready.
fn ready_modern() -> World {
    let common = Common { patient: true, ..Common::default() };
    let mut world = World::new(vec![Table::new("a")], common, vec![None], 1);
    world.modern = true;
    world.apply(&Act::Initialize(0));
    world.apply(&Act::List("tools"));
    at_rest(world)
}

/// What can happen next, with what is left then. `busy`: something happens without a fault or time.
fn options(world: &World, left: &Left) -> (Vec<(Act, Left)>, bool) {
    let mut all = Vec::new();
    let same = |act: Act| (act, left.clone());
    for (conn, proc) in &world.procs {
        let conn = *conn;
        if proc.stage == Stage::Spawning {
            all.push(same(Act::Spawned(conn)));
        }
        if world.can_write(conn) {
            all.push(same(Act::Write(conn, Amount::All)));
        }
        if proc.is_running() && proc.has_line() {
            all.push(same(Act::ChildReads(conn)));
        }
        if proc.is_running() && (left.coarse || !proc.stop_ordered) {
            all.extend((0..proc.todo.len()).map(|at| same(Act::Answers(conn, at, How::Well))));
        }
        if !proc.told && !proc.stdout.is_empty() {
            all.push(same(Act::Deliver(conn)));
        }
        if !proc.told && !proc.is_running() && proc.stage != Stage::Spawning {
            all.push(same(Act::Gone(conn)));
        }
        if proc.stop_ordered {
            all.push(same(Act::Reaped(conn)));
        }
    }
    if let Some((next, rest)) = left.host.split_first() {
        all.push((next.clone(), Left { host: rest.to_vec(), ..left.clone() }));
    }
    let busy = !all.is_empty();
    for (conn, proc) in &world.procs {
        let conn = *conn;
        if left.failed_spawns > 0 && proc.stage == Stage::Spawning {
            let rest = Left { failed_spawns: left.failed_spawns - 1, ..left.clone() };
            all.push((Act::NotSpawned(conn, false), rest));
        }
        if !proc.is_running() || proc.stop_ordered {
            continue;
        }
        if left.cuts && !proc.midway && world.can_write(conn) {
            all.push(same(Act::Write(conn, Amount::One)));
        }
        if left.crashes > 0 && proc.key == "a" {
            all.push((Act::Dies(conn, 1), Left { crashes: left.crashes - 1, ..left.clone() }));
        }
        if left.changes > 0 && proc.key == "a" && proc.initialized {
            all.push((Act::Changes(conn), Left { changes: left.changes - 1, ..left.clone() }));
        }
        if left.asks > 0 && proc.todo.iter().any(|todo| todo.mark.is_some()) {
            all.push((Act::Asks(conn, 1), Left { asks: left.asks - 1, ..left.clone() }));
        }
        if left.asks_for_roots > 0 && proc.initialized && proc.todo.is_empty() {
            all.push((Act::Asks(conn, 0), Left { asks_for_roots: left.asks_for_roots - 1, ..left.clone() }));
        }
        if left.takes_back > 0 {
            let open = world.watch.questions.iter().rposition(|q| q.conn == conn && !q.answered && !q.taken_back);
            let rest = Left { takes_back: left.takes_back - 1, ..left.clone() };
            all.extend(open.map(|mark| (Act::TakesBack(conn, mark), rest)));
        }
        if left.silences > 0 && !proc.todo.is_empty() {
            let rest = Left { silences: left.silences - 1, ..left.clone() };
            all.push((Act::Answers(conn, 0, How::Never), rest));
        }
    }
    if left.cancels > 0 {
        let rest = Left { cancels: left.cancels - 1, ..left.clone() };
        all.extend(world.open_calls().into_iter().map(|id| (Act::Cancel(id), rest.clone())));
        let parked = world.watch.rounds.iter().filter(|round| !round.old).map(|round| round.id.clone());
        all.extend(parked.map(|id| (Act::Cancel(id), rest.clone())));
    }
    if left.retries > 0 {
        let rest = Left { retries: left.retries - 1, ..left.clone() };
        all.extend((0..world.watch.rounds.len()).map(|at| (Act::Retry(at, Back::All), rest.clone())));
    }
    if left.ticks > 0 && world.hub.deadline().is_some() {
        all.push((Act::Tick, Left { ticks: left.ticks - 1, ..left.clone() }));
    }
    if let Some((next, rest)) = left.orders.split_first() {
        all.push((next.clone(), Left { orders: rest.to_vec(), ..left.clone() }));
    }
    (all, busy)
}

/// Lets something happen.
///
/// A coarse step goes on to where the machine sees of it: what was written is read at once, what a child says comes
/// through at once, and its death is told at once. The machine sees the same inputs in the same orders, for it can't
/// tell when in between a child read, spoke or died; a child that may speak after the end of its input was ordered
/// stands for one whose words were in the pipe by then.
fn happens(world: &mut World, act: &Act, coarse: bool) {
    if let (true, Act::Gone(conn)) = (world.states.is_some(), act) {
        // Where states are compared the host reads each line at once, also the last ones of a dead child.
        while !world.procs[conn].stdout.is_empty() {
            world.apply(&Act::Deliver(*conn));
            world.host_reads(Amount::All);
        }
    }
    world.apply(act);
    if coarse {
        match act {
            Act::Write(conn, _) => {
                while world.procs[conn].has_line() {
                    world.apply(&Act::ChildReads(*conn));
                }
            }
            Act::Answers(conn, ..) | Act::Changes(conn) => {
                while world.procs.get(conn).is_some_and(|proc| !proc.told && !proc.stdout.is_empty()) {
                    world.apply(&Act::Deliver(*conn));
                }
            }
            Act::Dies(conn, _) => world.apply(&Act::Gone(*conn)),
            _ => {}
        }
    }
}

/// Goes through all states that can be reached, and from each that has nothing left to do to the end.
fn explore(name: &str, start: World, left: Left) {
    explore_for(name, start, left, &[]);
}

/// What came of one request: how it was answered, whether it was sent, cancelled, promised not to be sent, and the fates of
/// its outcomes.
type Came = (Option<(i64, String)>, bool, bool, bool, Vec<u8>);

/// What can be told of a world at its end: what came of each request, which lives there were, and the last lists.
type End = (Vec<Came>, Vec<(usize, u32)>, Vec<String>);

fn end_of(world: &World) -> End {
    let watch = &world.watch;
    let came = watch.requests.iter().enumerate().map(|(mark, request)| {
        let fates = watch.outcomes.values().filter(|(of, _)| *of == mark).map(|(_, fate)| *fate as u8);
        let mut fates: Vec<u8> = fates.collect();
        fates.sort_unstable();
        (request.told.clone(), request.started.is_some(), request.cancelled, request.never, fates)
    });
    let mut lives: Vec<_> = world.past.iter().map(|conn| (conn.server.0, conn.generation)).collect();
    lives.sort_unstable();
    (came.collect(), lives, watch.given.values().map(|(list, _)| list.clone()).collect())
}

/// What was reached on all ways of a world.
#[derive(Default)]
struct Reached {
    ends: BTreeSet<End>,
    /// Of the machine, if they are asked for, as digests.
    states: BTreeSet<u64>,
}

/// The same; each of `must` has to have occurred on some way.
fn explore_for(name: &str, start: World, left: Left, must: &[&str]) -> Reached {
    let mut reached = Reached::default();
    let mut occurred: HashSet<&str> = HashSet::new();
    let began = Instant::now();
    let mut seen: HashSet<(u64, Left)> = HashSet::new();
    let mut open = vec![(start, left)];
    let (mut steps, mut ends) = (0_u64, 0_u64);
    while let Some((world, left)) = open.pop() {
        if !seen.insert((world.fingerprint(), left.clone())) {
            continue;
        }
        assert!(seen.len() < MOST, "the world \"{name}\" is too large");
        let (all, busy) = options(&world, &left);
        if !busy || world.exited {
            ends += 1;
            for by_signal in [true, false] {
                let mut end = world.clone();
                finish(&mut end, by_signal);
                reached.ends.insert(end_of(&end));
            }
            if !world.watch.rounds.is_empty() {
                let mut alone = world.clone();
                alone.returns = false;
                finish(&mut alone, true);
            }
        }
        occurred.extend(must.iter().filter(|name| world.watch.stats.of(name) > 0));
        if world.exited {
            continue;
        }
        for (act, rest) in all {
            steps += 1;
            let mut next = world.clone();
            if let Some(trace) = &mut next.trace {
                trace.push(format!("{act:?}"));
            }
            happens(&mut next, &act, left.coarse);
            if next.host_has() {
                next.host_reads(Amount::All);
            }
            reached.states.extend(next.states.iter_mut().flat_map(|states| states.drain(..)));
            open.push((next, rest));
        }
    }
    println!("{name}: {} states, {steps} steps, {ends} ends, {:?}", seen.len(), began.elapsed());
    assert!(seen.len() > 50, "nothing happened");
    let missing: Vec<&&str> = must.iter().filter(|name| !occurred.contains(**name)).collect();
    assert!(missing.is_empty(), "no {missing:?} in the world \"{name}\"");
    reached
}

/// Explores a world in fine and in coarse steps: both must take the machine through the same states to the same ends.
fn alike(name: &str, start: &World, left: &Left) {
    let [fine, coarse] = [false, true].map(|coarse| {
        let left = Left { coarse, ..left.clone() };
        let mut start = start.clone();
        start.states = Some(Vec::new());
        explore_for(&format!("{name}, {}", if coarse { "coarse" } else { "fine" }), start, left, &[])
    });
    let states = [&fine, &coarse].map(|way| way.states.len());
    println!("{name}: {} ends, {states:?} states of the machine", fine.ends.len());
    let missed: Vec<_> = fine.ends.difference(&coarse.ends).take(3).collect();
    let made_up: Vec<_> = coarse.ends.difference(&fine.ends).take(3).collect();
    assert!(missed.is_empty() && made_up.is_empty(), "{name}: missed {missed:#?}, made up {made_up:#?}");
    let missed = fine.states.difference(&coarse.states).count();
    let made_up = coarse.states.difference(&fine.states).count();
    assert_eq!((missed, made_up), (0, 0), "{name}: states of the machine that are missed, and made up");
}

fn call(key: &str, argument: usize) -> Act {
    Act::Call(key.to_owned(), Form::plain("call", argument))
}

#[test]
fn every_order_of_two_calls_and_a_crash() {
    let host = vec![call("a", 1), call("b", 2)];
    explore("a crash", ready(), Left { host, crashes: 1, ticks: 2, cuts: true, ..Left::default() });
}

#[test]
fn every_order_of_two_calls_at_one_child_and_a_crash() {
    let host = vec![call("a", 1), call("a", 2)];
    explore("a crash with two calls", ready(), Left { host, crashes: 2, ticks: 1, cuts: true, ..Left::default() });
}

#[test]
fn every_order_of_two_calls_and_a_cancellation() {
    let left = Left { host: vec![call("a", 1), call("b", 2)], cancels: 2, cuts: true, ..Left::default() };
    explore("cancellations", ready(), left);
}

#[test]
fn every_order_of_a_cancellation_and_a_crash() {
    let left = Left {
        host: vec![call("a", 1), call("a", 2)],
        cancels: 2,
        crashes: 1,
        ticks: 1,
        cuts: true,
        ..Left::default()
    };
    explore("a cancellation and a crash", ready(), left);
}

#[test]
fn every_order_of_two_calls_and_a_time_limit() {
    let left = Left { host: vec![call("a", 1), call("b", 2)], ticks: 3, silences: 1, cuts: true, ..Left::default() };
    explore("a time limit", ready(), left);
}

#[test]
fn every_order_of_two_calls_and_a_reload() {
    let left = Left { host: vec![call("a", 1), call("b", 2)], ticks: 1, orders: replaced(), ..Left::default() };
    explore("a reload that replaces", ready(), left);
}

#[test]
fn every_order_of_a_server_that_is_removed_and_comes_back() {
    let tables = vec![Table::new("a"), Table::new("b")];
    let orders = vec![Act::Reload(tables[1..].to_vec()), Act::Reload(tables)];
    let left = Left { host: vec![call("a", 1), call("b", 2)], ticks: 1, orders, ..Left::default() };
    explore("a server that goes and comes", ready(), left);
}

#[test]
fn every_order_of_lists_and_a_change() {
    let left = Left { host: vec![Act::List("tools"), call("a", 2)], changes: 1, ticks: 2, ..Left::default() };
    explore("a change of a list", ready(), left);
}

#[test]
fn every_order_of_orders_and_a_crash() {
    let order = |command| Act::Order(command, "a".to_owned(), false);
    let orders = vec![order(Command::Restart), order(Command::Stop), order(Command::Start)];
    let left = Left { host: vec![call("a", 1)], crashes: 1, orders, ..Left::default() };
    explore("orders", ready(), left);
}

#[test]
fn every_order_of_two_calls_and_the_end() {
    for end in [Act::Stop, Act::Eof] {
        let left =
            Left { host: vec![call("a", 1), call("b", 2)], orders: vec![end], ticks: 1, cuts: true, ..Left::default() };
        explore("the end", ready(), left);
    }
}

fn replaced() -> Vec<Act> {
    let mut tables = vec![Table::new("a"), Table::new("b")];
    tables[0].launch = 1;
    vec![Act::Reload(tables)]
}

#[test]
fn every_order_of_a_crash_and_a_reload() {
    let host = vec![call("a", 1), call("a", 2)];
    explore("a crash and a reload", ready(), Left { host, crashes: 1, orders: replaced(), ..Left::default() });
}

#[test]
fn every_order_of_a_cancellation_a_time_limit_and_a_reload() {
    let left = Left { host: vec![call("a", 1)], cancels: 1, ticks: 1, orders: replaced(), ..Left::default() };
    explore("a cancellation, a time limit and a reload", ready(), left);
}

#[test]
fn every_order_of_a_change_and_a_crash() {
    let left = Left { host: vec![call("a", 1)], changes: 1, crashes: 1, ticks: 1, ..Left::default() };
    explore("a change and a crash", ready(), left);
}

/// What [`happens`] says of coarse steps, tried where both can be: one fault less, or one call.
#[test]
fn coarse_steps_miss_no_end() {
    let two = || vec![call("a", 1), call("b", 2)];
    let some = Left { host: two(), ..Left::default() };
    for (name, left) in [
        ("a crash", Left { crashes: 1, ticks: 2, ..some.clone() }),
        ("a crash and a cancellation", Left { crashes: 1, cancels: 1, ..some.clone() }),
        ("a crash and a change", Left { host: vec![call("a", 1)], crashes: 1, changes: 1, ticks: 1, ..some.clone() }),
        ("a crash, a cancellation and a change", Left { crashes: 1, cancels: 1, changes: 1, ..some.clone() }),
        ("a reload", Left { ticks: 1, orders: replaced(), ..some.clone() }),
        ("a crash and a reload", Left { host: vec![call("a", 1)], crashes: 1, orders: replaced(), ..some.clone() }),
        (
            "a cancellation and a reload",
            Left { host: vec![call("a", 1)], cancels: 1, ticks: 1, orders: replaced(), ..some },
        ),
    ] {
        alike(name, &ready(), &left);
    }
}

#[test]
fn every_order_of_two_calls_and_one_fault_of_each_kind() {
    let left = Left {
        host: vec![call("a", 1), call("b", 2)],
        cancels: 1,
        crashes: 1,
        ticks: 1,
        changes: 1,
        orders: replaced(),
        coarse: true,
        ..Left::default()
    };
    explore("a crash, a cancellation, a time limit, a reload and a change", ready(), left);
}

#[test]
fn every_order_of_a_start() {
    let world = World::new(vec![Table::new("a")], Common::default(), vec![None], 1);
    let host = vec![Act::Initialize(0), call("a", 1), call("a", 2)];
    explore("a start", world, Left { host, failed_spawns: 1, crashes: 1, cancels: 1, ticks: 1, ..Left::default() });
}

// A modern host before a legacy child that asks: the state table of `PROTOCOL.md` 5.3.

#[test]
fn r63_every_order_of_a_question_two_retries_a_cancellation_and_an_exit() {
    let left =
        Left { host: vec![call("a", 1)], asks: 1, retries: 2, cancels: 1, crashes: 1, ticks: 1, ..Left::default() };
    explore_for(
        "a question, two retries, a cancellation, an exit",
        ready_modern(),
        left,
        &["parked", "retries refused", "given up", "lost", "questions answered", "answered"],
    );
}

#[test]
fn r75_every_order_of_a_question_and_its_expiry() {
    // One for the window, one for the limit, one for the last word, and what follows.
    let left =
        Left { host: vec![call("a", 1)], asks: 1, retries: 2, cancels: 1, ticks: 5, silences: 1, ..Left::default() };
    explore_for("a question and its expiry", ready_modern(), left, &["parked", "expired", "late"]);
}

/// All of the table at once: one call, one question, and one each of retry, second retry, cancellation, exit, expiry.
#[test]
fn r76_every_order_of_all_that_may_happen_to_a_question() {
    let left =
        Left { host: vec![call("a", 1)], asks: 1, retries: 2, cancels: 1, crashes: 1, ticks: 3, ..Left::default() };
    let must = ["parked", "retries refused", "given up", "expired", "lost", "late", "answered"];
    explore_for("all that may happen to a question", ready_modern(), left, &must);
}

#[test]
fn r77_every_order_of_two_questions_one_taken_back_and_two_retries() {
    let left = Left { host: vec![call("a", 1)], asks: 2, takes_back: 1, retries: 2, ticks: 2, ..Left::default() };
    explore_for("two questions", ready_modern(), left, &["parked", "retries refused"]);
}

#[test]
fn r79_every_order_of_two_calls_and_a_question() {
    let left =
        Left { host: vec![call("a", 1), call("a", 2)], asks: 1, retries: 1, crashes: 1, ticks: 1, ..Left::default() };
    explore_for("two calls and a question", ready_modern(), left, &["parked", "questions answered"]);
}

// Our own questions to a modern host, which go before the call: it runs once, however often the host comes back.

#[test]
fn every_order_of_a_repeat_and_two_answers_to_our_question() {
    let host = vec![call("a", 1), call("a", 1)];
    let left = Left { host, crashes: 1, retries: 2, cancels: 1, ticks: 2, coarse: true, ..Left::default() };
    let must = ["lost", "guard asked", "retries refused", "answered"];
    explore_for("two answers to the guard's question", ready_modern(), left, &must);
}

#[test]
fn every_order_of_a_question_for_roots_and_two_answers() {
    let left = Left {
        host: vec![call("a", 1)],
        asks_for_roots: 1,
        retries: 2,
        cancels: 1,
        crashes: 1,
        coarse: true,
        ..Left::default()
    };
    let must = ["roots asked", "retries refused", "answered"];
    explore_for("two answers to the question for roots", ready_modern(), left, &must);
}

#[test]
fn every_order_of_a_question_a_retry_and_the_end() {
    for end in [Act::Stop, Act::Eof] {
        let left =
            Left { host: vec![call("a", 1)], asks: 1, retries: 1, ticks: 2, orders: vec![end], ..Left::default() };
        explore("a question and the end", ready_modern(), left);
    }
}
