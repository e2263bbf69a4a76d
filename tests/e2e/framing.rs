//! Stdio framing: noise, long lines, split characters, line ends, interleaved writes (F08–F13).

use serde_json::json;

use crate::harness::{SOON, Setup};

/// Everything that is no message; none of it may end anything.
const NOISE: [&str; 18] = [
    "text",
    "brokenjson",
    "halfjson",
    "number",
    "string",
    "object",
    "array",
    "emptyarray",
    "null",
    "nullid",
    "fractionid",
    "utf8",
    "nul",
    "ansi",
    "long",
    "deep",
    "crlf",
    "hugeid",
];

#[test]
fn f08_noise_of_a_child_is_counted_with_its_source_and_ends_nothing() {
    let mut host = Setup::new().server("a", "banner=text").server("b", "").open();
    let pids = (host.call("a__whoami", "{}").told()["process"]["pid"].clone(), host.pids("b"));
    for kind in NOISE {
        let reply = host.call("a__noise", &json!({ "kind": kind }).to_string());
        assert_eq!(reply.text(), "after noise", "{kind}");
    }
    let status = host.status("a");
    // `hugeid` is a message, if a strange one; all else is noise, and so is the banner.
    assert_eq!(status["noiseLines"], NOISE.len(), "{status:#}");
    assert_eq!((&status["state"], &status["restarts"]), (&json!("ready"), &json!(0)));
    assert_eq!(host.status("b")["noiseLines"], 0);
    assert_eq!((host.call("a__whoami", "{}").told()["process"]["pid"].clone(), host.pids("b")), pids);
    assert_eq!(host.others(), 0, "nothing of it reached the host");
    host.logged("Server is starting, please wait");
}

#[test]
fn f08_a_flood_of_noise_is_a_few_lines_of_the_log() {
    let mut host = Setup::new().server("a", "").open();
    assert_eq!(host.call("a__noise", r#"{"kind":"text","n":2000}"#).text(), "after noise");
    assert_eq!(host.status("a")["noiseLines"], 2000);
    host.logged("please wait");
    let lines = host.stderr().lines().filter(|line| line.contains("please wait")).count();
    assert!((1..=12).contains(&lines), "{lines} lines of log about 2000 lines of noise");
}

#[test]
fn f08_an_empty_line_of_a_child_is_nothing() {
    let mut host = Setup::new().server("a", "banner=empty").open();
    for kind in ["empty", "blank"] {
        assert_eq!(host.call("a__noise", &json!({ "kind": kind }).to_string()).text(), "after noise");
    }
    assert_eq!(host.status("a")["noiseLines"], 0);
}

#[test]
fn f09_nothing_is_written_back_in_answer_to_noise() {
    let mut host = Setup::new().server("a", "record").open();
    host.names("tools");
    host.call("a__echo", "{}");
    let before = host.record("a").len();
    for kind in NOISE {
        host.call("a__noise", &json!({ "kind": kind }).to_string());
    }
    host.until("all calls are recorded", || host.record("a").len() >= before + NOISE.len());
    let after = &host.record("a")[before..];
    assert!(after.iter().all(|line| line.contains("tools/call")), "{after:#?}");
}

#[test]
fn f09_bad_lines_of_the_host_end_nothing_and_are_answered_a_few_times_a_second() {
    let mut host = Setup::new().server("a", "").open();
    for _ in 0..500 {
        host.send("Content-Length: 3");
    }
    assert_eq!(host.call("a__echo", r#"{"x":1}"#).text(), r#"{"x":1}"#);
    let answers = host.others();
    assert!((1..=100).contains(&answers), "{answers} answers to 500 bad lines");
    host.other().error(-32700);
}

#[test]
fn f10_results_of_any_size_arrive_whole() {
    let mut host = Setup::new().server("a", "ilen=204800").open();
    for bytes in [65_535, 65_536, 65_537, 1 << 20, 8 << 20, 32 << 20] {
        let text = host.call("a__big", &format!(r#"{{"bytes":{bytes}}}"#)).text();
        assert_eq!(text.len(), bytes);
        assert!(text.bytes().all(|byte| byte == b'b'), "{bytes}");
    }
}

#[test]
fn f10_long_instructions_arrive_whole() {
    let mut host = Setup::new().server("a", "ilen=204800 instructions=Hello").start();
    let opened = host.initialize("2025-11-25", "{}");
    let text = opened["instructions"].as_str().unwrap();
    assert!(text.ends_with(&"i".repeat(204_800)), "{} bytes", text.len());
}

#[test]
fn f10_a_result_over_the_limit_fails_its_own_call_only() {
    let mut host = Setup::new().proxy(r#"max_message = "1MiB""#).server("a", "").server("b", "").open();
    let id = host.request_call("a__oversize", r#"{"bytes":3145728}"#);
    let other = host.request_call("a__echo", r#"{"n":1}"#);
    let error = host.wait(&id).error(-31010);
    assert_eq!(error["data"]["reason"], "response_too_large");
    assert_eq!(error["data"]["server"], "a");
    assert_eq!(host.wait(&other).text(), r#"{"n":1}"#);
    assert_eq!(host.status("a")["restarts"], 0);
    assert_eq!(host.call("b__echo", "{}").text(), "{}");
}

#[test]
fn f10_a_request_over_the_limit_is_answered_and_not_sent() {
    let mut host = Setup::new().proxy(r#"max_message = "64KiB""#).server("a", "record").open();
    host.names("tools");
    let text = "x".repeat(100_000);
    // The id stands behind what is too long, too.
    host.send(&format!(
        r#"{{"jsonrpc":"2.0","method":"tools/call","params":{{"name":"a__echo","arguments":{{"t":"{text}"}}}},"id":"late id"}}"#
    ));
    let error = host.wait("\"late id\"").error(-31011);
    assert_eq!(error["data"]["reason"], "request_too_large");
    assert_eq!(host.call("a__echo", "{}").text(), "{}");
    assert_eq!(host.sent("a", "tools/call"), 1);
}

#[test]
fn f11_characters_cut_between_reads_stay_whole() {
    let text = "é€😀\u{2028}\u{85}ß日本";
    let mut host = Setup::new().server("a", "one_byte").open();
    let reply = host.call("a__echo", &json!({ "t": text }).to_string());
    assert_eq!(reply.told()["t"], text);
    assert!(reply.raw_result().contains(text), "the characters are as they were written: {}", reply.raw);
    // The other way: one byte at a time from the host.
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"tools/call\",\"params\":{{\"name\":\"a__echo\",\"arguments\":{{\"t\":\"{text}\"}}}}}}\n"
    );
    for byte in line.into_bytes() {
        host.send_bytes([byte]);
    }
    assert_eq!(host.wait("\"x\"").told()["t"], text);
}

#[test]
fn f11_stderr_with_split_characters_is_logged_whole() {
    let host = Setup::new().server_with("a", &["stderr_line=prüfe 日本 😀"], "").open();
    host.logged("prüfe 日本 😀");
}

#[test]
fn f12_crlf_and_byte_order_marks_are_fine_both_ways() {
    for flags in ["crlf", "bom", "bom_all", "crlf bom_all one_byte"] {
        let mut host = Setup::new().server("a", flags).start();
        host.send_bytes(*b"\xef\xbb");
        host.send_bytes(*b"\xbf");
        let opened = host.initialize("2025-11-25", "{}");
        assert_eq!(opened["protocolVersion"], "2025-11-25");
        host.send_bytes(*b"\r\n  \n\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":\"c\",\"method\":\"ping\"}  \r\n");
        assert_eq!(host.wait("\"c\"").raw, r#"{"jsonrpc":"2.0","id":"c","result":{}}"#, "{flags}");
        let reply = host.call("a__echo", r#"{"x":1}"#);
        assert_eq!(reply.text(), r#"{"x":1}"#, "{flags}");
        assert!(!reply.raw.contains(['\r', '\u{feff}']), "our own lines end in LF and have no mark: {:?}", reply.raw);
        assert_eq!(host.status("a")["noiseLines"], 0, "{flags}");
    }
}

#[test]
fn f13_large_writes_never_interleave() {
    let mut setup = Setup::new();
    for key in ["a", "b", "c", "d"] {
        setup = setup.server(key, "");
    }
    let mut host = setup.open();
    host.read_in_steps(1024);
    let mut ids = Vec::new();
    for n in 0..4 {
        for key in ["a", "b", "c", "d"] {
            let char = char::from(b'a' + n);
            let id = host.request_call(&format!("{key}__big"), &format!(r#"{{"bytes":1048576,"char":"{char}"}}"#));
            ids.push((id, char));
        }
    }
    // Each line is read as JSON by the harness; a broken one fails there.
    for (id, char) in ids {
        let text = host.wait(&id).text();
        assert!(text.len() == 1 << 20 && text.chars().all(|other| other == char), "{} bytes", text.len());
    }
}

#[test]
fn f13_large_calls_to_one_child_arrive_whole_and_in_order() {
    let mut host = Setup::new().socket().server("a", "").open();
    let text = "y".repeat(256 << 10);
    let ids: Vec<String> =
        (0..16).map(|n| host.request_call("a__echo", &format!(r#"{{"n":{n},"t":"{text}"}}"#))).collect();
    for (n, id) in ids.iter().enumerate() {
        let told = host.wait(id).told();
        assert_eq!((&told["n"], told["t"].as_str().unwrap().len()), (&json!(n), 256 << 10));
    }
}

#[test]
fn f13_a_host_that_reads_late_gets_everything() {
    let mut host = Setup::new().server("a", "").server("b", "ledger").open();
    host.names("tools");
    host.read(false);
    let ids: Vec<String> = (0..12).map(|_| host.request_call("a__big", r#"{"bytes":1000000}"#)).collect();
    let small = host.request_call("b__echo", r#"{"x":1}"#);
    host.until("b has its call although nothing is read", || host.ledger("b").len() == 1);
    host.read(true);
    for id in ids {
        assert_eq!(host.wait(&id).text().len(), 1_000_000);
    }
    assert_eq!(host.wait(&small).text(), r#"{"x":1}"#);
}

#[test]
fn garbage_of_both_sides_is_told_once_with_its_source() {
    let mut host = Setup::new().server("a", "").open();
    host.call("a__noise", r#"{"kind":"ansi"}"#);
    host.send("{oops");
    host.other().error(-32700);
    host.call("a__wrong_id", r#"{"id":424242}"#);
    host.call("a__double_reply", "{}");
    host.fence();
    let started = std::time::Instant::now();
    host.logged("source=\"host\"");
    host.logged("424242");
    let stderr = host.stderr();
    let about = |text: &str| stderr.lines().filter(|line| line.contains(text)).count();
    assert_eq!(about("source=\"host\""), 1, "{stderr}");
    assert_eq!(about("424242"), 1, "{stderr}");
    assert_eq!(about("stdout holds a line that is no message"), 1, "{stderr}");
    assert!(
        stderr.lines().filter(|line| line.contains("no message:")).all(|line| line.contains("server=a")),
        "{stderr}"
    );
    assert!(!stderr.contains('\u{1b}'), "a child can't steer the terminal by its noise: {stderr:?}");
    assert!(started.elapsed() < SOON);
}
