//! Check and apply, through a real socket, against a data plane that records.
#![allow(missing_docs, clippy::unwrap_used)]

mod fake;

use std::thread;

use agent::{
    api::{ApplyRequest, CheckRequest, Counts, RollbackRequest, SourceText},
    client::ClientError,
};
use fake::{Server, apply, sources};

#[test]
fn good_files_are_published_once() {
    let server = Server::start();
    let applied = server.client().apply(&apply(9999)).unwrap();
    assert!(applied.changed);
    assert_eq!((applied.generation, applied.took_us), (1, 37));
    assert_eq!(applied.counts, Counts { tenants: 1, ports: 1, rules: 3 });
    let program = server.client().program().unwrap();
    assert_eq!((program.generation, &program.digest), (1, &applied.digest));
    assert_eq!(program.sources, ["p/fabric.yaml", "p/red.yaml"]);

    let again = server.client().apply(&apply(9999)).unwrap();
    assert!(!again.changed);
    assert_eq!((again.generation, again.took_us, &again.digest), (1, 0, &applied.digest));

    let next = server.client().apply(&apply(9998)).unwrap();
    assert!(next.changed);
    assert_ne!(next.digest, applied.digest);
    assert_eq!(server.plane.generations(), [1, 2]);
}

#[test]
fn bad_files_give_all_diagnostics_and_change_nothing() {
    let server = Server::start();
    server.client().apply(&apply(9999)).unwrap();
    let mut bad = apply(9998);
    bad.sources[0].text = bad.sources[0].text.replace("mtu: 1500", "mtu: 7");
    bad.sources[1].text = bad.sources[1].text.replace("vni: 100", "vni: 0");
    let Err(ClientError::Policy { diagnostics, .. }) = server.client().apply(&bad) else {
        panic!("bad files are taken")
    };
    let places: Vec<_> = diagnostics.list.iter().map(|d| (d.source.as_str(), d.line)).collect();
    assert_eq!(places, [("p/fabric.yaml", 8), ("p/red.yaml", 6)]);
    assert_eq!(server.plane.generations(), [1]);
}

#[test]
fn what_did_not_change_is_not_compiled_again() {
    let server = Server::start();
    let text = "apiVersion: floodway.dev/v1alpha1\nkind: Tenant\nmetadata: {name: blue}\nspec: {vni: 7}\n";
    let with_blue = |port: u16| {
        let mut request = apply(port);
        request.sources.push(SourceText { name: "p/blue.yaml".into(), text: text.into() });
        request
    };
    let apply = |port: u16| server.client().apply(&with_blue(port)).unwrap();
    assert_eq!(apply(9999).recompiled, 2);
    assert_eq!(apply(9998).recompiled, 1);
    let request = CheckRequest { sources: with_blue(9997).sources };
    assert_eq!(server.client().plan(&request).unwrap().recompiled, 1);
    // The plan has compiled it.
    let applied = apply(9997);
    assert!(applied.changed);
    assert_eq!((applied.generation, applied.recompiled), (3, 0));
    let back = server.client().rollback(&RollbackRequest { generation: None }).unwrap();
    assert_eq!((back.generation, back.recompiled), (4, 1));
}

/// Not wrong by itself: only the running program shows that the daemon cannot open another device.
#[test]
fn files_are_compiled_against_the_running_program() {
    let server = Server::start();
    server.client().apply(&apply(9999)).unwrap();
    let mut other = apply(9999);
    other.sources[0].text = other.sources[0].text.replace("mtu: 1500", "mtu: 1400");
    let request = CheckRequest { sources: other.sources.clone() };
    assert!(matches!(server.client().check(&request), Err(ClientError::Policy { .. })));
    assert!(matches!(server.client().apply(&other), Err(ClientError::Policy { .. })));
    assert_eq!(server.plane.generations(), [1]);
}

#[test]
fn check_changes_nothing() {
    let server = Server::start();
    let check = |port| server.client().check(&CheckRequest { sources: sources(port) }).unwrap();
    assert!(check(9999).changed);
    assert!(server.plane.generations().is_empty());
    let applied = server.client().apply(&apply(9999)).unwrap();
    assert!(!check(9999).changed);
    assert_eq!(check(9999).digest, applied.digest);
    assert!(check(9998).changed);
    assert_eq!(server.plane.generations(), [1]);
}

#[test]
fn an_apply_for_another_generation_is_refused() {
    let server = Server::start();
    let expecting = |port, generation| ApplyRequest { expect_generation: Some(generation), ..apply(port) };
    server.client().apply(&expecting(9999, 0)).unwrap();
    let error = server.client().apply(&expecting(9998, 0)).unwrap_err();
    assert!(matches!(error, ClientError::Refused { status: 409, .. }), "{error:?}");
    assert_eq!(error.to_string(), "generation 1 runs, not 0 as expected; nothing was changed");
    server.client().apply(&expecting(9998, 1)).unwrap();
    assert_eq!(server.plane.generations(), [1, 2]);
}

#[test]
fn a_stuck_worker_is_named_until_it_runs_the_program() {
    let server = Server::start();
    server.client().apply(&apply(9999)).unwrap();
    server.plane.set_stuck(&[1]);
    let is_stuck = |error: ClientError| match error {
        ClientError::Stuck { error, generation, workers } => {
            assert!(error.contains("generation 2 is published"), "{error}");
            assert!(error.ends_with("do not run it: 1"), "{error}");
            assert_eq!((generation, workers), (2, vec![1]));
        }
        other => panic!("{other:?}"),
    };
    is_stuck(server.client().apply(&apply(9998)).unwrap_err());
    is_stuck(server.client().apply(&apply(9998)).unwrap_err());
    server.plane.set_stuck(&[]);
    assert!(!server.client().apply(&apply(9998)).unwrap().changed);
    assert_eq!(server.plane.generations(), [1, 2]);
}

#[test]
fn what_the_data_plane_rejects_is_not_running() {
    let server = Server::start();
    server.plane.set_rejects(true);
    let error = server.client().apply(&apply(9999)).unwrap_err();
    assert!(matches!(error, ClientError::Refused { status: 500, .. }), "{error:?}");
    assert!(error.to_string().contains("there is no memory for it; the running program stays"), "{error}");
    assert_eq!(server.client().program().unwrap().generation, 0);
    server.plane.set_rejects(false);
    assert!(server.client().apply(&apply(9999)).unwrap().changed);
}

#[test]
fn applies_come_one_after_the_other() {
    let server = Server::start();
    let gate = server.plane.hold_next_publication();
    thread::scope(|scope| {
        for port in 1..=12 {
            let client = server.client();
            scope.spawn(move || assert!(client.apply(&apply(port)).unwrap().changed));
        }
        gate.wait_until_publishing();
        // While one is held, the others have every chance to overtake it: each check does the work of an apply.
        for _ in 0..40 {
            server.client().check(&CheckRequest { sources: sources(9998) }).unwrap();
        }
        gate.open();
    });
    assert!(!server.plane.overlapped());
    // Each was compiled against the one before: no generation is missing, none was given twice.
    assert_eq!(server.plane.generations(), (1..=12).collect::<Vec<_>>());
}

#[test]
fn questions_are_answered_while_a_program_is_published() {
    let server = Server::start();
    let gate = server.plane.hold_next_publication();
    thread::scope(|scope| {
        let client = server.client();
        let applying = scope.spawn(move || client.apply(&apply(9999)));
        gate.wait_until_publishing();
        assert_eq!(server.client().report().unwrap().generation, 0);
        assert!(server.client().check(&CheckRequest { sources: sources(9998) }).unwrap().changed);
        gate.open();
        assert_eq!(applying.join().unwrap().unwrap().generation, 1);
    });
}

#[test]
fn a_client_that_leaves_does_not_cut_its_apply() {
    use std::io::Write;
    let server = Server::start();
    let gate = server.plane.hold_next_publication();
    let body = serde_json::to_string(&apply(9999)).unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(&server.socket).unwrap();
    write!(stream, "POST /v1/apply HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .unwrap();
    gate.wait_until_publishing();
    drop(stream);
    gate.open();
    // Waits for the first, and comes after it.
    assert_eq!(server.client().apply(&apply(9998)).unwrap().generation, 2);
    assert!(!server.plane.overlapped());
    assert_eq!(server.plane.generations(), [1, 2]);
}

#[test]
fn a_shutdown_lets_an_apply_end() {
    let mut server = Server::start();
    let gate = server.plane.hold_next_publication();
    let client = server.client();
    let applying = thread::spawn(move || client.apply(&apply(9999)));
    gate.wait_until_publishing();
    server.shutdown.trigger();
    gate.open();
    assert_eq!(applying.join().unwrap().unwrap().generation, 1);
    server.stop();
    assert!(!server.socket.exists());
}
