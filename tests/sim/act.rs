//! What may happen next in a world, and the doing of it. The schedules draw from it; the exploration tries all of it.

use std::time::Duration;

use mcp_proxy::config::RestartWhen;
use mcp_proxy::engine::child::Conn;
use mcp_proxy::engine::hub::{Command, Hub, StartFailure};

use super::child::{How, Stage};
use super::config::Table;
use super::host;
use super::modern::Back;
use super::watch::What;
use super::world::{Amount, World};

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    Initialize(usize),
    Initialized,
    List(&'static str),
    /// A request for that child in that form.
    Call(String, host::Form),
    /// The same id while it is under way.
    Again(String),
    Batch(Vec<(String, host::Form)>),
    Cancel(String),
    /// A modern host comes back with answers for that round.
    Retry(usize, Back),
    Own(usize),
    Junk(usize),
    AnswerQuestion(u64, usize),
    AnswerRead(usize),
    HostReads(Amount),
    Spawned(Conn),
    NotSpawned(Conn, bool),
    Write(Conn, Amount),
    ChildReads(Conn),
    Answers(Conn, usize, How),
    Says(Conn, usize),
    Progress(Conn, usize),
    Asks(Conn, usize),
    TakesBack(Conn, usize),
    Changes(Conn),
    Deliver(Conn),
    Dies(Conn, i32),
    Closes(Conn),
    Gone(Conn),
    Reaped(Conn),
    Stale(Conn, usize),
    Order(Command, String, bool),
    Reload(Vec<Table>),
    Tick,
    Wait(Duration),
    Eof,
    Stop,
}

impl World {
    pub fn apply(&mut self, act: &Act) {
        self.watch.stats.add("steps");
        match act.clone() {
            Act::Initialize(variant) => self.initialize(variant),
            Act::Initialized => {
                self.watch.initialized = true;
                self.host_says(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.into());
            }
            Act::List(array) => self.list(array),
            Act::Call(key, form) => {
                let line = self.call(&key, form);
                self.host_says(line);
            }
            Act::Again(id) => {
                let mark = self.watch.asks(What::Own, &id, None);
                self.host_says(self.call_line(&id, "tools/call", r#""name":"a__call""#, mark, None));
            }
            Act::Batch(calls) => {
                let first = self.watch.requests.len();
                let items: Vec<String> = calls.into_iter().map(|(key, form)| self.call(&key, form)).collect();
                self.watch.requests[first..].iter_mut().for_each(|request| request.array = true);
                self.host_says(format!("[{}]", items.join(",")));
            }
            Act::Cancel(id) => {
                self.watch.cancels(&id);
                self.host_says(format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"enough"}}}}"#
                ));
            }
            Act::Retry(round, back) => self.retry(round, back),
            Act::Own(variant) => self.own(variant),
            Act::Junk(variant) => self.junk(variant),
            Act::AnswerQuestion(our, variant) => self.answer_question(our, variant),
            Act::AnswerRead(at) => self.answer_read(at),
            Act::HostReads(amount) => self.host_reads(amount),
            Act::Spawned(conn) => self.spawned(conn, Ok(())),
            Act::NotSpawned(conn, hopeless) => {
                self.spawned(conn, Err(StartFailure { reason: "no such command".into(), hopeless }));
            }
            Act::Write(conn, amount) => self.write(conn, amount),
            Act::Stale(conn, variant) => self.stale(conn, variant),
            Act::Order(command, key, at_once) => {
                self.watch.stats.add("orders");
                self.note(|| format!("order {command:?} {key} {at_once}"));
                let work = |hub: &mut Hub, now| drop(hub.handle_command(now, command, &key, at_once));
                self.step(work, |hub, now| hub.handle_fault(now, None));
                self.step_done();
            }
            Act::Reload(tables) => self.reload(tables),
            Act::Tick => {
                self.tick();
            }
            Act::Wait(time) => self.wait(time),
            Act::Eof => {
                self.watch.stats.add("ends of input");
                self.note(|| "end of input".into());
                self.step(mcp_proxy::engine::hub::Hub::handle_host_eof, mcp_proxy::engine::hub::Hub::handle_stop_fault);
                self.step_done();
            }
            Act::Stop => {
                self.watch.stats.add("stops");
                self.note(|| "stop".into());
                self.step(mcp_proxy::engine::hub::Hub::handle_stop, mcp_proxy::engine::hub::Hub::handle_stop_fault);
                self.step_done();
            }
            act => self.child_acts(act),
        }
    }

    fn child_acts(&mut self, act: Act) {
        self.note(|| format!("{act:?}"));
        match act {
            Act::ChildReads(conn) => {
                let key = self.procs[&conn].key.clone();
                let version = *self.versions.entry(key).or_insert(1);
                let proc = self.procs.get_mut(&conn).expect("it lives");
                proc.read(&mut self.watch, version);
            }
            Act::Answers(conn, at, how) => {
                let proc = self.procs.get_mut(&conn).expect("it lives");
                let version = self.versions.entry(proc.key.clone()).or_insert(1);
                proc.answer(at, how, &mut self.watch, version);
                if how == How::WellAndChanged {
                    self.watch.stats.add("list changes");
                }
            }
            Act::Says(conn, variant) => self.child_says(conn, variant),
            Act::Progress(conn, at) => {
                let proc = self.procs.get_mut(&conn).expect("it lives");
                let id = proc.todo[at].id;
                proc.say(format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":1}}}}"#
                ));
            }
            Act::Asks(conn, variant) => self.child_asks(conn, variant),
            Act::TakesBack(conn, mark) => {
                self.watch.questions[mark].taken_back = true;
                let id = self.watch.questions[mark].id.clone();
                self.procs.get_mut(&conn).expect("it lives").say(format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
                ));
            }
            Act::Changes(conn) => {
                self.watch.stats.add("list changes");
                let proc = self.procs.get_mut(&conn).expect("it lives");
                *self.versions.entry(proc.key.clone()).or_insert(1) += 1;
                proc.say(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#.into());
            }
            Act::Deliver(conn) => self.deliver(conn),
            Act::Dies(conn, code) => {
                self.watch.stats.add(if code == 0 { "exit 0" } else { "crashes" });
                let proc = self.procs.get_mut(&conn).expect("it lives");
                proc.stage = Stage::Exited(code);
                proc.todo.clear();
                proc.pipe.clear();
            }
            Act::Closes(conn) => {
                self.watch.stats.add("closed stdout");
                self.procs.get_mut(&conn).expect("it lives").out_closed = true;
            }
            Act::Gone(conn) => self.gone(conn),
            Act::Reaped(conn) => self.reap(conn),
            act => unreachable!("{act:?} is no child's"),
        }
    }

    fn child_says(&mut self, conn: Conn, variant: usize) {
        let proc = self.procs.get_mut(&conn).expect("it lives");
        self.watch.stats.add("junk");
        proc.say(match variant {
            0 => "Listening on stdio …".into(),
            1 => r#"{"jsonrpc":"2.0","id":999999,"result":{}}"#.into(),
            2 => r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#.into(),
            3 => r#"{"jsonrpc":"2.0","id":"77","result":{}}"#.into(),
            4 => r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9999,"progress":1}}"#
                .into(),
            5 => r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"?"}}"#.into(),
            6 => "[1,2]".into(),
            _ => r#"{"half":"#.into(),
        });
    }

    fn child_asks(&mut self, conn: Conn, variant: usize) {
        // The ids of its open questions are not used again.
        let used = |id: &str| {
            let questions = self.watch.questions.iter();
            questions.filter(|q| q.conn == conn && q.id == id).any(|q| !q.answered || q.taken_back)
        };
        let id = (0..10_000).map(|number| number.to_string()).find(|id| !used(id)).expect("there are many numbers");
        let mark = self.watch.child_asks(conn, id.clone(), variant == 0);
        let (method, more) = match variant {
            0 => ("roots/list", ""),
            1 => ("elicitation/create", r#","message":"Sure?","requestedSchema":{"type":"object","properties":{}}"#),
            _ => ("sampling/createMessage", r#","messages":[],"maxTokens":1"#),
        };
        // The id last: nothing may depend on the order of members.
        let line = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"mark":{mark}{more}}},"id":{id}}}"#);
        self.procs.get_mut(&conn).expect("it lives").say(line);
    }

    /// Word of a life that is over changes nothing.
    fn stale(&mut self, conn: Conn, variant: usize) {
        self.watch.stats.add("stale");
        let before = self.hub.fingerprint(self.now);
        let line = |text: &'static str| bytes::Bytes::from_static(text.as_bytes());
        match variant {
            0 => self.hub.handle_gone(self.now, conn, None),
            1 => self.hub.handle_reaped(self.now, conn),
            2 => self.hub.handle_spawned(self.now, conn, Ok(9)),
            3 => self.hub.handle_spawned(self.now, conn, Err(StartFailure { reason: "late".into(), hopeless: true })),
            4 => self.hub.handle_child(
                self.now,
                conn,
                line(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#),
            ),
            5 => self.hub.handle_child(self.now, conn, line(r#"{"jsonrpc":"2.0","id":0,"method":"roots/list"}"#)),
            _ => {
                for id in 0..40 {
                    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
                    self.hub.handle_child(self.now, conn, text.into());
                }
            }
        }
        assert_eq!(before, self.hub.fingerprint(self.now), "P2: word of the old life {conn:?} ({variant}) acts");
        self.step_done();
    }

    /// Another set of tables.
    pub fn other_tables(&self, mut dice: impl FnMut(usize) -> usize) -> Vec<Table> {
        let mut tables = self.tables.clone();
        match dice(8) {
            0 | 1 if tables.len() > 1 => {
                tables.remove(dice(tables.len()));
            }
            2 | 3 => {
                let missing = ["a", "b", "c"].into_iter().find(|key| tables.iter().all(|table| table.key != *key));
                tables.extend(missing.map(Table::new));
            }
            4 => {
                let at = dice(tables.len());
                tables[at].filtered ^= true;
            }
            5 => tables.reverse(),
            6 => {
                let at = dice(tables.len());
                let table = &mut tables[at];
                table.policy = [RestartWhen::Always, RestartWhen::OnFailure, RestartWhen::Never][dice(3)];
                table.lazy ^= true;
            }
            _ => {
                let at = dice(tables.len());
                tables[at].launch += 1;
            }
        }
        tables
    }
}
