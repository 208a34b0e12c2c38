//! What comes over the socket that is no good request, and what the other routes answer.
#![allow(missing_docs, clippy::unwrap_used)]

mod fake;

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
};

use agent::api::{BODY_BYTES_MAX, CheckRequest, DropPlace, LIMIT_MAX, Refused, SourceText};
use fake::{Server, apply};

/// Status and body of the answer to what is sent.
fn exchange(server: &Server, request: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(&server.socket).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
}

fn send(server: &Server, method: &str, route: &str, body: &str) -> (u16, String) {
    let len = body.len();
    let head =
        format!("{method} {route} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n");
    exchange(server, &(head + body))
}

fn error(body: &str) -> String {
    serde_json::from_str::<Refused>(body).unwrap().error
}

#[test]
fn malformed_requests_are_answered_with_a_sentence() {
    let server = Server::start();
    let bodies = [
        "",
        "{",
        "[]",
        "{}",
        r#"{"sources": 1}"#,
        r#"{"sources": [{"name": "a.yaml"}]}"#,
        r#"{"sources": [], "dry_run": true}"#,
        r#"{"sources": [{"name": "a.yaml", "text": "\ud800"}]}"#,
        "{\"sources\": []}{",
        &"[".repeat(100_000),
    ];
    for body in bodies {
        for route in ["/v1/check", "/v1/apply"] {
            let (status, answer) = send(&server, "POST", route, body);
            assert_eq!(status, 400, "{answer}");
            assert!(
                error(&answer).starts_with("the request is not the JSON that this route takes: "),
                "{answer}"
            );
        }
    }
    let (status, answer) = send(&server, "POST", "/v1/check", r#"{"sources": [], "expectGeneration": 1}"#);
    assert_eq!(status, 400, "{answer}");
    assert!(server.plane.generations().is_empty());
}

#[test]
fn no_sources_are_a_diagnostic() {
    let server = Server::start();
    let (status, answer) = send(&server, "POST", "/v1/apply", r#"{"sources": []}"#);
    assert_eq!(status, 422, "{answer}");
    assert!(!serde_json::from_str::<Refused>(&answer).unwrap().diagnostics.is_empty());
}

#[test]
fn source_names_must_be_fit_to_be_printed() {
    let server = Server::start();
    let source = |name: &str| SourceText { name: name.into(), text: String::new() };
    for names in [&[""][..], &["a\n"], &["\u{1b}[2J"], &["a.yaml", "b.yaml", "a.yaml"]] {
        let request = CheckRequest { sources: names.iter().map(|name| source(name)).collect() };
        let (status, answer) = send(&server, "POST", "/v1/check", &serde_json::to_string(&request).unwrap());
        assert_eq!(status, 400, "{answer}");
        assert!(error(&answer).starts_with("the source name "), "{answer}");
    }
}

#[test]
fn routes_methods_and_parameters_that_do_not_exist_are_refused() {
    let server = Server::start();
    for (method, route, expected) in [
        ("GET", "/", 404),
        ("GET", "/v1/reports", 404),
        ("GET", "/v1/apply", 405),
        ("DELETE", "/v1/report", 405),
        ("GET", "/v1/flows?limit=0", 400),
        ("GET", "/v1/flows?limit=-1", 400),
        ("GET", &format!("/v1/flows?limit={}", LIMIT_MAX + 1), 400),
        ("GET", "/v1/rules?limit=1&limit=2", 400),
        ("GET", "/v1/rules?after=1", 400),
    ] {
        let (status, answer) = send(&server, method, route, "");
        assert_eq!(status, expected, "{method} {route}: {answer}");
        assert!(!error(&answer).is_empty());
    }
}

/// Only the length is announced: what is too large is refused before it is sent.
#[test]
fn a_request_that_is_too_large_is_refused() {
    let server = Server::start();
    let head = format!(
        "POST /v1/apply HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        BODY_BYTES_MAX + 1
    );
    let (status, answer) = exchange(&server, &head);
    assert_eq!(status, 413, "{answer}");
    assert_eq!(error(&answer), "the request is larger than 64 MiB");
}

/// No length is announced: it is refused once it has become too large.
#[test]
fn a_request_that_grows_too_large_is_refused() {
    let server = Server::start();
    let mut stream = UnixStream::connect(&server.socket).unwrap();
    let mut answers = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        stream
            .write_all(b"POST /v1/check HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
            .unwrap();
        let chunk = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
        // Fails when the server has had enough.
        (0..1000).take_while(|_| stream.write_all(chunk.as_bytes()).is_ok()).count()
    });
    let mut head = [0; 12];
    answers.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");
    assert!((64..1000).contains(&sender.join().unwrap()));
}

#[test]
fn what_is_not_http_does_no_harm() {
    let server = Server::start();
    let (status, _) = exchange(&server, "\u{1}\u{2}\u{3}\r\n\r\n");
    assert_eq!(status, 400);
    drop(UnixStream::connect(&server.socket).unwrap());
    let mut cut = UnixStream::connect(&server.socket).unwrap();
    cut.write_all(b"POST /v1/apply HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{").unwrap();
    drop(cut);
    assert_eq!(server.client().report().unwrap().generation, 0);
}

#[test]
fn reports_come_as_the_data_plane_gives_them() {
    let server = Server::start();
    let report = agent::DataPlane::report(&*server.plane);
    assert_eq!(server.client().report().unwrap(), report);
    assert_eq!(server.client().tenants().unwrap(), report.tenants);
    assert_eq!(server.client().ports().unwrap(), report.ports);
    assert_eq!(server.client().neighbours().unwrap(), report.neighbours);
}

#[test]
fn every_drop_reason_is_listed_with_its_places() {
    let server = Server::start();
    let drops = server.client().drops().unwrap();
    assert_eq!(drops.len(), program::DropReason::COUNT);
    let places = |places: &[(&str, u64)]| -> Vec<DropPlace> {
        places.iter().map(|&(name, packets)| DropPlace { name: name.into(), packets }).collect()
    };
    for drop in drops {
        // A packet that red0 dropped is counted by tenant red as well, and once in the total.
        let (packets, ports, tenants): (_, &[_], &[_]) = match drop.reason.as_str() {
            "spoofed-mac" => (3, &[("uplink0", 1), ("red0", 2)], &[("red", 2)]),
            "unknown-vni" => (3, &[("uplink0", 3)], &[]),
            "policy-deny" => (4, &[], &[("red", 4)]),
            _ => (0, &[], &[]),
        };
        let expected = (packets, places(ports), places(tenants));
        assert_eq!((drop.packets, drop.ports, drop.tenants), expected, "{}", drop.reason);
        assert!(!drop.meaning.starts_with(' ') && drop.meaning.ends_with('.'), "{}", drop.meaning);
    }
}

#[test]
fn answers_say_when_they_are_cut() {
    let server = Server::start();
    server.client().apply(&apply(9999)).unwrap();
    for (limit, expected, truncated) in [(1, 1, true), (2, 2, true), (3, 3, false), (LIMIT_MAX, 3, false)] {
        let flows = server.client().flows(limit).unwrap();
        assert_eq!((flows.flows.len(), flows.truncated), (expected, truncated));
        let rules = server.client().rules(limit).unwrap();
        assert_eq!((rules.rules.len(), rules.truncated), (expected, truncated));
    }
}

#[test]
fn rules_say_where_they_were_written_and_who_asks_them() {
    let server = Server::start();
    server.client().apply(&apply(9999)).unwrap();
    let rules = server.client().rules(LIMIT_MAX).unwrap().rules;
    let deny = rules.iter().find(|rule| rule.verdict == "deny").unwrap();
    assert_eq!((deny.origin.as_str(), &deny.peers), ("p/red.yaml:26", &None));
    assert_eq!(
        (&deny.services[..], &deny.egress[..], deny.ingress.len()),
        (&["tcp/9999".into()][..], &["red0".into()][..], 0)
    );
    let from = rules.iter().find(|rule| !rule.ingress.is_empty()).unwrap();
    assert_eq!(
        (from.peers.as_deref(), from.verdict.as_str()),
        (Some(&["10.1.0.20/32".into()][..]), "accept")
    );
}
