//! `/v1/explain` and `/v1/plan` over the socket: both methods, what is refused, and that nothing changes.
#![allow(missing_docs, clippy::unwrap_used)]

mod fake;

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
};

use agent::api::{CheckRequest, Refused};
use compile::{
    diff::Plan,
    explain::{Explanation, Outcome, Question},
};
use fake::{Server, apply, sources};

fn send(server: &Server, method: &str, route: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(&server.socket).unwrap();
    let len = body.len();
    let head =
        format!("{method} {route} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
}

fn applied() -> Server {
    let server = Server::start();
    server.client().apply(&apply(9999)).unwrap();
    server
}

#[test]
fn a_query_and_a_body_ask_the_same() {
    let server = applied();
    let query = "/v1/explain?from=red0&dst=10.1.0.20&protocol=tcp&dstPort=9999&src=10%2e1.0.10";
    let (status, answer) = send(&server, "GET", query, "");
    assert_eq!(status, 200, "{answer}");
    let by_query: Explanation = serde_json::from_str(&answer).unwrap();
    let question = Question {
        from: "red0".into(),
        dst: Some("10.1.0.20".parse().unwrap()),
        protocol: Some("tcp".into()),
        dst_port: Some(9999),
        ..Question::default()
    };
    assert_eq!(server.client().explain(&question).unwrap(), by_query);
    assert_eq!(by_query.verdict, Outcome::Dropped);
    assert_eq!(by_query.rule.as_deref(), Some("p/red.yaml:26"));
}

#[test]
fn questions_that_nobody_can_answer_are_bad_requests() {
    let server = applied();
    let refused = |(status, answer): (u16, String)| {
        assert_eq!(status, 400, "{answer}");
        serde_json::from_str::<Refused>(&answer).unwrap().error
    };
    for (query, sentence) in [
        ("", "where the packet comes in is missing"),
        ("?from", "`from` is not name=value"),
        ("?from=red0&from=red0", "`from` is given twice"),
        ("?from=%zz", "the value of `from` is badly encoded"),
        ("?from=red9&frame=00", "the program has no port `red9`"),
        ("?from=red0&frame=0", "the frame is not in hexadecimal digits, two a byte"),
        ("?from=red0&frame=00&dst=10.1.0.1", "dst is not a field of a question about a frame"),
    ] {
        assert_eq!(refused(send(&server, "GET", &format!("/v1/explain{query}"), "")), sentence);
    }
    for body in [
        "",
        "[]",
        r#"{"fro": "red0"}"#,
        r#"{"from": "red0", "dst": "10.1.0"}"#,
        r#"{"from": "red0", "dstPort": 65536}"#,
    ] {
        refused(send(&server, "POST", "/v1/explain", body));
    }
}

/// The fake has flows of red0 from ports 40000 to 40002 to port 5201.
#[test]
fn what_is_open_is_told_beside_what_the_rules_say() {
    let server = applied();
    let ask = |from: &str, tenant: Option<&str>, src: &str, dst: &str, ports: (u16, u16)| {
        let question = Question {
            from: from.into(),
            tenant: tenant.map(Into::into),
            src: Some(src.parse().unwrap()),
            dst: Some(dst.parse().unwrap()),
            protocol: Some("tcp".into()),
            src_port: Some(ports.0),
            dst_port: Some(ports.1),
            ..Question::default()
        };
        server.client().explain(&question).unwrap()
    };
    let (here, there) = ("10.1.0.10", "10.1.0.20");
    let open = ask("red0", None, here, there, (40_001, 5201)).live.unwrap();
    assert!(open.passes && open.why.ends_with("its flow is open"), "{open:?}");
    assert_eq!(open.flows.len(), 1);
    assert_eq!((open.flows[0].service.as_str(), open.flows[0].packets), ("tcp 40001 > 5201", 9));
    let new = ask("red0", None, here, there, (50_000, 5201)).live.unwrap();
    assert!(new.passes && new.flows.is_empty() && new.why.ends_with("it would open a flow"), "{new:?}");
    let refused = ask("red0", None, here, there, (40_001, 9999)).live.unwrap();
    assert!(!refused.passes && refused.flows.is_empty(), "{refused:?}");
    // An answer is allowed by a rule of its own here; it is told all the same that it answers.
    let answer = ask("fabric", Some("red"), there, here, (5201, 40_001)).live.unwrap();
    assert!(answer.passes && answer.why.contains("answers a flow that is open"), "{answer:?}");
    let gateway = ask("red0", None, here, "10.1.0.1", (1, 2));
    assert_eq!(gateway.live.map(|live| live.passes), Some(false));
}

/// Any frame gets an answer, also where nothing runs.
#[test]
fn frames_are_explained_whatever_is_in_them() {
    let server = applied();
    for (frame, reason) in [("", "malformed"), ("00", "malformed"), (&*"ff".repeat(60), "spoofed-mac")] {
        let question = Question { from: "red0".into(), frame: Some(frame.into()), ..Question::default() };
        let explanation = server.client().explain(&question).unwrap();
        assert_eq!(explanation.reason.unwrap().name, reason);
    }
    let (status, answer) = send(&Server::start(), "GET", "/v1/explain?from=red0&frame=00", "");
    assert_eq!(status, 400, "{answer}");
}

#[test]
fn a_plan_changes_nothing() {
    let server = applied();
    let plan = |port: u16| server.client().plan(&CheckRequest { sources: sources(port) }).unwrap();
    let same = plan(9999);
    assert!(!same.changed && same.flows.judged == 3 && same.flows.changed == 0);
    let Plan { changed, tenants, classes, .. } = plan(9998);
    assert_eq!((changed, tenants.len(), classes.list.len()), (true, 1, 2));
    assert_eq!(server.plane.generations(), [1]);
    // Of three flows to port 5201 none is left, when that is what is denied.
    let denied = plan(5201);
    assert_eq!((denied.flows.changed, denied.flows.list[0].after.as_str()), (3, "policy-deny"));
    let (status, answer) = send(&server, "POST", "/v1/plan", r#"{"sources": []}"#);
    assert_eq!(status, 422, "{answer}");
    let (status, _) = send(&server, "GET", "/v1/plan", "");
    assert_eq!(status, 405);
}
