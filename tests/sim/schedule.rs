//! Seeded schedules: what comes next is drawn; at the end everything is let come to rest.

use std::time::Duration;

use mcp_proxy::config::RestartWhen;
use mcp_proxy::engine::hub::Command;

use super::act::Act;
use super::child::How;
use super::config::{Common, Table, known};
use super::host::Form;
use super::modern::Back;
use super::watch::What;
use super::world::{Amount, World};

/// `SplitMix64`.
pub struct Dice(pub u64);

impl Dice {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.bits() % bound as u64).expect("below a usize")
    }

    fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// What a schedule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Well-behaved children, a busy host.
    Calm,
    /// Children that fail in every way.
    Faults,
    /// Orders and reloads.
    Orders,
    /// A host that batches, reads slowly and is asked much.
    Host,
    /// A modern host before legacy children that ask.
    Modern,
}

impl Flavour {
    /// How often a fault of a child is drawn, in a thousand.
    fn faults(self) -> usize {
        match self {
            Self::Calm => 5,
            Self::Faults => 120,
            Self::Orders => 40,
            Self::Host => 30,
            Self::Modern => 15,
        }
    }

    fn orders(self) -> usize {
        match self {
            Self::Calm => 3,
            Self::Faults | Self::Host | Self::Modern => 10,
            Self::Orders => 90,
        }
    }
}

pub fn world(flavour: Flavour, dice: &mut Dice) -> World {
    let count = 1 + dice.below(3);
    let mut tables: Vec<Table> = ["a", "b", "c"][..count].iter().map(|key| Table::new(key)).collect();
    for table in &mut tables {
        table.lazy = dice.one_in(6);
        table.idle_limit = dice.one_in(4);
        table.max_pending = dice.of(&[256, 256, 3, 1]);
        if dice.one_in(5) {
            table.policy = dice.of(&[RestartWhen::OnFailure, RestartWhen::Never]);
        }
    }
    let cached: Vec<_> = tables.iter().map(|_| dice.one_in(4).then(|| known(1))).collect();
    let common = Common { restless: dice.one_in(6), patient: flavour == Flavour::Modern && dice.one_in(2) };
    let with_cache: Vec<String> =
        tables.iter().zip(&cached).filter(|(_, known)| known.is_some()).map(|(table, _)| table.key.clone()).collect();
    let mut world = World::new(tables, common, cached, dice.bits());
    world.rich = flavour == Flavour::Host || dice.one_in(4);
    world.modern = flavour == Flavour::Modern;
    world.returns = dice.one_in(2);
    for proc in world.procs.values_mut() {
        proc.prompts = world.rich;
    }
    for key in with_cache {
        world.watch.served.entry(key).or_default().insert(1);
    }
    world
}

/// Draws what happens next.
fn draw(world: &mut World, flavour: Flavour, dice: &mut Dice) -> Option<Act> {
    let thousandth = dice.below(1000);
    if thousandth < flavour.faults() {
        return fault(world, dice);
    }
    if thousandth >= 1000 - flavour.orders() {
        return Some(order(world, dice));
    }
    // A question that was asked is soon put, or else few ever would be.
    let soon = world.now + Duration::from_millis(20);
    if flavour == Flavour::Modern && dice.one_in(3) && world.hub.deadline().is_some_and(|at| at <= soon) {
        return Some(Act::Tick);
    }
    match dice.below(10) {
        0 | 1 => Some(host(world, flavour, dice)),
        2 => match dice.below(12) {
            0 => Some(Act::Tick),
            // Now and then longer than a host is waited for.
            1 if flavour == Flavour::Modern && dice.one_in(3) => Some(Act::Wait(Duration::from_secs(910))),
            1 => Some(Act::Wait(Duration::from_millis(dice.of(&[1, 30, 300, 3_000, 30_000])))),
            _ => Some(Act::HostReads(amount(flavour, dice))),
        },
        _ => child(world, flavour, dice),
    }
}

fn amount(flavour: Flavour, dice: &mut Dice) -> Amount {
    match flavour {
        Flavour::Host => dice.of(&[Amount::One, Amount::Half, Amount::Half, Amount::All]),
        _ => dice.of(&[Amount::Half, Amount::All, Amount::All, Amount::All]),
    }
}

fn form(dice: &mut Dice, rich: bool) -> Form {
    let what = if rich {
        dice.of(&["call", "call", "look", "idem", "prompt", "read", "complete"])
    } else {
        dice.of(&["call", "call", "call", "look", "idem"])
    };
    Form { what, argument: dice.below(3), progress: dice.one_in(3), text_id: dice.one_in(5), reuse: dice.one_in(4) }
}

fn host(world: &mut World, flavour: Flavour, dice: &mut Dice) -> Act {
    let first = if world.modern { What::List("prompts") } else { What::Initialize };
    let initialize = world.watch.requests.iter().find(|request| request.what == first);
    let Some(initialize) = initialize else {
        return match dice.below(8) {
            0 => Act::Own(dice.below(8)),
            1 => Act::Junk(dice.below(6)),
            _ if flavour == Flavour::Host => Act::Initialize(1 + dice.below(3) * 4),
            _ => Act::Initialize(dice.of(&[0, 0, 0, 1, 4, 8, 2, 3])),
        };
    };
    if !world.modern && initialize.delivered && !world.watch.initialized && dice.below(3) > 0 {
        return Act::Initialized;
    }
    let open = world.open_calls();
    if world.modern
        && !world.watch.rounds.is_empty()
        && let Some(act) = back(world, dice)
    {
        return act;
    }
    let keys: Vec<String> = world.tables.iter().map(|table| table.key.clone()).collect();
    match dice.below(20) {
        0 | 1 => Act::List(dice.of(&["tools", "tools", "prompts", "resources"])),
        2 if !open.is_empty() => Act::Cancel(dice.of(&open)),
        3 if !open.is_empty() && dice.one_in(3) => Act::Again(dice.of(&open)),
        4 => Act::Own(dice.below(8)),
        5 if dice.one_in(3) => Act::Junk(dice.below(6)),
        6 if world.batches && world.watch.initialized => {
            Act::Batch((0..=dice.below(3)).map(|_| (dice.of(&keys), form(dice, world.rich))).collect())
        }
        7..=10 if !world.questions.is_empty() => {
            Act::AnswerQuestion(dice.of(&world.questions), dice.of(&[0, 0, 0, 1, 2, 3]))
        }
        11 if !world.reads.is_empty() => Act::AnswerRead(dice.below(world.reads.len())),
        _ => Act::Call(dice.of(&keys), form(dice, world.rich)),
    }
}

/// What a modern host does about what it was asked.
fn back(world: &World, dice: &mut Dice) -> Option<Act> {
    let at = dice.below(world.watch.rounds.len());
    let round = &world.watch.rounds[at];
    // Old ones are tried, too, but not for ever.
    if round.retries > 2 || (round.old && dice.one_in(2)) {
        return None;
    }
    match dice.below(12) {
        0 => Some(Act::Cancel(round.id.clone())),
        1 => Some(Act::Retry(at, Back::Nothing)),
        2 => Some(Act::Retry(at, Back::OtherCall)),
        3 => Some(Act::Retry(at, Back::Refused)),
        4..=7 => Some(Act::Retry(at, Back::All)),
        _ => None,
    }
}

fn child(world: &mut World, flavour: Flavour, dice: &mut Dice) -> Option<Act> {
    let conns: Vec<_> = world.procs.keys().copied().collect();
    if conns.is_empty() {
        return None;
    }
    let conn = dice.of(&conns);
    let proc = &world.procs[&conn];
    let mut may = Vec::new();
    if proc.stage == super::child::Stage::Spawning {
        return Some(Act::Spawned(conn));
    }
    if world.can_write(conn) {
        may.push(Act::Write(conn, dice.of(&[Amount::All, Amount::All, Amount::Half, Amount::One])));
    }
    if proc.is_running() && proc.has_line() {
        may.push(Act::ChildReads(conn));
    }
    if proc.is_running() && !proc.todo.is_empty() {
        let at = dice.below(proc.todo.len());
        let (progress, initialize) = (proc.todo[at].progress, proc.todo[at].method == "initialize");
        let asks = world.watch.questions.iter().any(|q| q.conn == conn && !q.answered && !q.taken_back);
        // Who asks mostly waits for the answer.
        if flavour == Flavour::Modern && asks && proc.todo[at].mark.is_some() && !dice.one_in(8) {
            return (!proc.stdout.is_empty() && !proc.told).then_some(Act::Deliver(conn));
        }
        may.push(Act::Answers(conn, at, how(flavour, initialize, dice)));
        if progress && dice.one_in(3) {
            may.push(Act::Progress(conn, at));
        }
    }
    let runs_call = proc.is_running() && proc.todo.iter().any(|todo| todo.mark.is_some());
    if flavour == Flavour::Modern && runs_call && dice.one_in(2) {
        may.push(Act::Asks(conn, dice.below(3)));
    }
    if proc.is_running() && proc.initialized && dice.one_in(15) {
        may.push(match dice.below(4) {
            0 => Act::Changes(conn),
            1 => Act::Says(conn, dice.below(8)),
            _ => Act::Asks(conn, dice.below(3)),
        });
    }
    let taken = world.watch.questions.iter().rposition(|q| q.conn == conn && !q.answered && !q.taken_back);
    if let Some(mark) = taken.filter(|_| flavour == Flavour::Modern && proc.is_running() && dice.one_in(12)) {
        may.push(Act::TakesBack(conn, mark));
    }
    if !proc.stdout.is_empty() && !proc.told && world.hub.wants_child(conn) {
        may.push(Act::Deliver(conn));
    }
    if !proc.told && (matches!(proc.stage, super::child::Stage::Exited(_)) || proc.out_closed) {
        may.push(Act::Gone(conn));
    }
    if proc.stop_ordered && dice.one_in(3) {
        may.push(Act::Reaped(conn));
    }
    if may.is_empty() { None } else { Some(dice.of(&may)) }
}

fn how(flavour: Flavour, initialize: bool, dice: &mut Dice) -> How {
    let bad = dice.below(1000) < flavour.faults() * 2;
    match (bad, initialize) {
        (false, false) => dice.of(&[How::Well, How::Well, How::Well, How::Well, How::Error, How::WellAndChanged]),
        (false, true) => How::Well,
        (true, true) => dice.of(&[How::Never, How::Error, How::OtherRevision, How::NoObject, How::Both]),
        (true, false) => dice.of(&[How::Never, How::Twice, How::StringId, How::Both, How::NoObject, How::TooLong]),
    }
}

fn fault(world: &mut World, dice: &mut Dice) -> Option<Act> {
    let conns: Vec<_> = world.procs.keys().copied().collect();
    if !world.past.is_empty() && dice.one_in(4) {
        return Some(Act::Stale(dice.of(&world.past), dice.below(7)));
    }
    if conns.is_empty() {
        return None;
    }
    let conn = dice.of(&conns);
    let proc = &world.procs[&conn];
    if proc.stage == super::child::Stage::Spawning {
        return Some(Act::NotSpawned(conn, dice.one_in(3)));
    }
    if !proc.is_running() {
        return None;
    }
    let taken = world.watch.questions.iter().rposition(|q| q.conn == conn && !q.answered && !q.taken_back);
    Some(match dice.below(8) {
        0 | 1 => Act::Dies(conn, dice.of(&[1, -1])),
        2 => Act::Dies(conn, 0),
        3 if !proc.out_closed => Act::Closes(conn),
        4 if taken.is_some() => Act::TakesBack(conn, taken.unwrap_or_default()),
        5 => Act::Changes(conn),
        6 => Act::Tick,
        _ => Act::Says(conn, dice.below(8)),
    })
}

fn order(world: &mut World, dice: &mut Dice) -> Act {
    let key = dice.of(&["a".to_owned(), "b".into(), "c".into()]);
    match dice.below(8) {
        0 | 1 => Act::Order(Command::Restart, key, dice.one_in(3)),
        2 => Act::Order(Command::Stop, key, dice.one_in(3)),
        3 => Act::Order(Command::Start, key, false),
        4 if dice.one_in(6) => Act::Eof,
        4 if dice.one_in(6) => Act::Stop,
        _ => {
            let tables = world.other_tables(|bound| dice.below(bound));
            Act::Reload(tables)
        }
    }
}

/// Runs one schedule to its end.
pub fn run(world: &mut World, flavour: Flavour, dice: &mut Dice) {
    let steps = 20 + dice.below(100);
    for _ in 0..steps {
        let Some(act) = draw(world, flavour, dice) else { continue };
        let last = matches!(act, Act::Eof | Act::Stop);
        // A host whose handshake failed begins anew, which these hosts don't.
        if world.broken && !matches!(act, Act::Initialize(_)) && dice.one_in(4) {
            world.fuse = Some(u32::try_from(dice.below(3)).unwrap_or(0));
        }
        world.apply(&act);
        world.fuse = None;
        if last || world.exited {
            break;
        }
    }
    finish(world, dice.below(2) == 0);
}

/// Everybody does what is to be done, time passes as far as it must, and then the end comes.
pub fn finish(world: &mut World, by_signal: bool) {
    if !world.hub.is_stopping() {
        rest(world);
        world.apply(if by_signal { &Act::Stop } else { &Act::Eof });
    }
    let began = world.now;
    while !world.exited {
        settle(world);
        assert!(world.exited || world.tick(), "the end never comes");
    }
    // After a fault of ours no timer rings for a second.
    let limit = Duration::from_secs(if world.watch.faulty { 2 } else { 1 });
    assert!(world.now <= began + limit, "the end came after {:?}", world.now - began);
    settle(world);
    assert!(world.watch.open.is_empty(), "P1: without an answer: {:?}", unanswered(world));
    assert!(world.procs.is_empty(), "P7: left behind: {:?}", world.procs);
    world.assert_fates();
}

fn unanswered(world: &World) -> Vec<&super::watch::Request> {
    world.watch.open.values().map(|mark| &world.watch.requests[*mark]).collect()
}

/// Lets everything come to rest, and looks whether it does.
fn rest(world: &mut World) {
    let initialize = world.watch.requests.iter().find(|request| request.what == What::Initialize);
    let opened = initialize.is_some() && !world.modern;
    settle(world);
    for _ in 0..300 {
        if opened
            && !world.watch.initialized
            && world.watch.requests.iter().any(|r| r.what == What::Initialize && r.delivered)
        {
            world.apply(&Act::Initialized);
            settle(world);
        }
        if world.watch.open.is_empty() && world.hub.open_work().is_empty() && !announces(world) {
            break;
        }
        if !world.tick() {
            break;
        }
        settle(world);
    }
    assert!(world.watch.open.is_empty(), "P1: without an answer at rest: {:?}", unanswered(world));
    let work = world.hub.open_work();
    assert!(work.is_empty(), "not empty at rest: {work:?}");
    if world.watch.initialized {
        for array in ["tools", "prompts", "resources"] {
            if let (Some(now), Some((given, told))) = (world.list_now(array), world.watch.given.get(array)) {
                assert!(*told || now == *given, "a change of {array} was not announced:\n{given}\n{now}");
            }
        }
    }
}

/// Whether the machine will do something in the next seconds.
fn announces(world: &World) -> bool {
    world.hub.deadline().is_some_and(|at| at <= world.now + Duration::from_secs(6))
}

/// All that can happen without time passing, happens in the kindest way.
pub fn settle(world: &mut World) {
    for _ in 0..500 {
        let mut acts = Vec::new();
        if world.host_has() {
            acts.push(Act::HostReads(Amount::All));
        }
        if world.returns && !world.hub.is_stopping() {
            acts.extend(world.unanswered_round().map(|round| Act::Retry(round, Back::All)));
        }
        if let Some(our) = world.questions.first().filter(|_| !world.exited) {
            acts.push(Act::AnswerQuestion(*our, 0));
        }
        if !world.reads.is_empty() {
            acts.push(Act::AnswerRead(0));
        }
        for (conn, proc) in &world.procs {
            let conn = *conn;
            acts.extend(match proc.stage {
                super::child::Stage::Spawning => Some(Act::Spawned(conn)),
                _ if !proc.told && !proc.stdout.is_empty() && world.hub.wants_child(conn) => Some(Act::Deliver(conn)),
                _ if !proc.told && (proc.out_closed || !proc.is_running()) => Some(Act::Gone(conn)),
                _ if proc.stop_ordered => Some(Act::Reaped(conn)),
                _ if world.can_write(conn) => Some(Act::Write(conn, Amount::All)),
                _ if proc.is_running() && proc.has_line() => Some(Act::ChildReads(conn)),
                _ if proc.is_running() && !proc.todo.is_empty() => Some(Act::Answers(conn, 0, How::Well)),
                _ => None,
            });
        }
        if acts.is_empty() {
            return;
        }
        for act in acts {
            // An act may have made another one of the list impossible.
            if possible(world, &act) {
                world.apply(&act);
            }
        }
    }
    panic!("it never comes to rest");
}

fn possible(world: &World, act: &Act) -> bool {
    match act {
        Act::Spawned(conn) => world.procs.contains_key(conn),
        Act::Deliver(conn) | Act::Gone(conn) | Act::Reaped(conn) | Act::ChildReads(conn) => {
            world.procs.contains_key(conn)
        }
        Act::Write(conn, _) => world.procs.contains_key(conn) && world.can_write(*conn),
        Act::Answers(conn, ..) => world.procs.get(conn).is_some_and(|proc| !proc.todo.is_empty()),
        Act::AnswerRead(_) => !world.reads.is_empty(),
        Act::HostReads(_) => world.host_has(),
        _ => true,
    }
}
