//! Files that state what is not so: who applies them is told of a packet, and nothing changes unless it is meant.
#![allow(missing_docs, clippy::unwrap_used)]

mod fake;

use std::fs;

use agent::{
    Start,
    api::{ApplyRequest, By, PolicyStatus, SourceText},
    client::ClientError,
};
use fake::{FABRIC, Server, apply, tenant};

/// Says that red0 sends nothing to this TCP port.
fn statement(port: u16) -> String {
    format!(
        "apiVersion: floodway.dev/v1alpha1\nkind: Statement\nmetadata: {{name: shut}}\nspec: {{expect: deny, from: {{tenant: red, ports: [red0]}}, to: {{}}, services: [{{protocol: TCP, port: {port}}}]}}\n"
    )
}

fn stating(denied: u16, stated: u16) -> ApplyRequest {
    let mut request = apply(denied);
    request.sources.push(SourceText { name: "p/statements.yaml".into(), text: statement(stated) });
    request
}

const FALSE: &str = "p/statements.yaml:3:18: error: statement shut (deny) is false of a packet: tenant red, port:red0, 10.1.0.10 > 10.1.0.20, tcp 49152 > 23; accepted by p/red.yaml:28 to vtep:fabric";

#[test]
fn what_is_false_is_refused_with_a_packet() {
    let server = Server::start();
    let client = server.client();
    assert!(client.apply(&stating(23, 23)).unwrap().warnings.is_empty());
    let Err(ClientError::Policy { diagnostics, error }) = client.apply(&stating(22, 23)) else { panic!() };
    assert_eq!(diagnostics.to_string(), format!("{FALSE}\n"));
    assert!(error.contains("what they state is not proven"), "{error}");
    assert_eq!(server.plane.generations(), [1]);
    // Whoever means it is told all the same.
    let applied = client.apply(&ApplyRequest { unproven: true, ..stating(22, 23) }).unwrap();
    assert_eq!((applied.generation, applied.warnings.list.len()), (2, 1));
    assert_eq!(applied.warnings.list[0].to_string(), FALSE.replace("error:", "warning:"));
    // It runs: the same files are no change. A way back is never shut.
    assert!(!client.apply(&stating(22, 23)).unwrap().changed);
    assert!(client.apply(&stating(21, 21)).unwrap().changed);
    let back = client.rollback(&agent::api::RollbackRequest { generation: Some(2) }).unwrap();
    assert_eq!((back.generation, back.warnings.list.len()), (4, 1));
}

/// A policy directory `p` with a state directory beside it.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new(denied: u16, stated: u16) -> Self {
        let scene = Self(tempfile::tempdir().unwrap());
        fs::create_dir(scene.0.path().join("p")).unwrap();
        fs::write(scene.0.path().join("p/fabric.yaml"), FABRIC).unwrap();
        scene.write(denied, stated);
        scene
    }

    /// Both in one write, so that a watch sees them together.
    fn write(&self, denied: u16, stated: u16) {
        let text = format!("{}---\n{}", tenant(denied), statement(stated));
        fs::write(self.0.path().join("p/red.yaml"), text).unwrap();
    }

    fn start(&self, watch: bool) -> Server {
        let at = |name: &str| self.0.path().join(name);
        Server::start_from(&Start { policy: at("p"), state: Some(at("state")), watch, generations_kept: 4 })
    }
}

#[test]
fn a_watched_directory_that_states_what_is_false_is_refused_and_told() {
    let scene = Scene::new(23, 23);
    let server = scene.start(true);
    scene.write(22, 23);
    let status = server.wait_for(|status| status.refused.is_some());
    let refused = status.refused.unwrap();
    assert!(refused.error.starts_with("watching ") && refused.error.contains("not proven"), "{refused:?}");
    assert!(refused.diagnostics.list[0].message.contains("tcp 49152 > 23"), "{refused:?}");
    assert_eq!(server.plane.generations(), [1]);
    scene.write(23, 23);
    scene.write(24, 24);
    let status = server.wait_for(|status| status.refused.is_none());
    assert_eq!(status.running.unwrap().by, By::Watch);
}

#[test]
fn a_start_takes_what_ran_last_before_what_an_apply_would_refuse() {
    let scene = Scene::new(23, 23);
    drop(scene.start(false));
    scene.write(22, 23);
    let server = scene.start(false);
    let status = server.client().status().unwrap();
    assert_eq!(status.policy, PolicyStatus::LastGood);
    assert!(status.refused.unwrap().error.contains("states what is not proven; starting with the last good"));
    drop(server);
    // With nothing else to run it runs, with a warning: a box that forwards nothing is no better.
    let alone = Scene::new(22, 23);
    let start = Start { policy: alone.0.path().join("p"), state: None, watch: false, generations_kept: 4 };
    let (program, warnings, _) = agent::Lifecycle::start(&start).unwrap();
    assert_eq!((program.generation.0, warnings.list.len()), (1, 1));
    assert!(warnings.list[0].message.contains("statement shut (deny) is false"), "{warnings}");
}
