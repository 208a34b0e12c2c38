//! Taking the socket, giving it back, and finding nobody behind it.
#![allow(missing_docs, clippy::unwrap_used)]

mod fake;

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::Path,
    sync::Arc,
};

use agent::{
    BindError, ServeError, Shutdown,
    client::{Client, ClientError},
};
use fake::{Fake, Server};

fn bind_error(path: &Path) -> BindError {
    match agent::bind(path) {
        Err(ServeError::Bind(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_socket_is_private_and_goes_with_the_server() {
    let mut server = Server::start();
    let mode = fs::metadata(&server.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // No lock and no other file beside it.
    assert_eq!(fs::read_dir(server.directory.path()).unwrap().count(), 1);
    server.stop();
    assert_eq!(fs::read_dir(server.directory.path()).unwrap().count(), 0);
}

#[test]
fn a_second_server_is_refused_and_the_first_goes_on() {
    let server = Server::start();
    let error = bind_error(&server.socket);
    let path = server.socket.display();
    assert_eq!(
        error.to_string(),
        format!("another floodwayd answers on {path}; stop it or choose another --socket")
    );
    assert_eq!(server.client().report().unwrap().generation, 0);
}

/// A daemon that has bound and does not serve yet counts as well.
#[test]
fn of_many_that_start_at_once_one_gets_the_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    let bound: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| agent::bind(&path))).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert_eq!(bound.iter().filter(|bound| bound.is_ok()).count(), 1);
    for error in bound.iter().filter_map(|bound| bound.as_ref().err()) {
        assert!(matches!(error, ServeError::Bind(BindError::InUse { .. })), "{error:?}");
    }
    assert!(path.exists());
}

#[test]
fn a_server_whose_backlog_is_full_is_alive() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let _first = agent::bind(&path).unwrap();
    let mut waiting = Vec::new();
    // Nobody accepts, so at some time no more connections fit.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    while let Ok(stream) = runtime.block_on(tokio::net::UnixStream::connect(&path)) {
        waiting.push(stream);
        assert!(waiting.len() < 10_000);
    }
    assert!(matches!(bind_error(&path), BindError::InUse { .. }));
    let error = Client::new(&path).report().unwrap_err().to_string();
    assert!(error.ends_with(": it has too many clients; try again"), "{error}");
}

#[test]
fn the_socket_of_a_dead_daemon_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    assert!(matches!(Client::new(&path).report(), Err(ClientError::NoDaemon { .. })));
    drop(agent::bind(&path).unwrap());
    assert!(!path.exists());
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    fs::write(&path, "keep").unwrap();
    assert!(matches!(bind_error(&path), BindError::NotASocket { .. }));
    std::os::unix::fs::symlink(&path, directory.path().join("link")).unwrap();
    assert!(matches!(bind_error(&directory.path().join("link")), BindError::NotASocket { .. }));
    assert_eq!(fs::read_to_string(&path).unwrap(), "keep");
}

/// Somebody removed the socket and another daemon took its place.
#[test]
fn a_server_removes_no_socket_but_its_own() {
    let mut server = Server::start();
    fs::remove_file(&server.socket).unwrap();
    let _other = UnixListener::bind(&server.socket).unwrap();
    server.stop();
    assert!(server.socket.exists());
}

#[test]
fn the_directory_of_the_socket_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run/floodway/s");
    let _listening = agent::bind(&path).unwrap();
    assert!(path.exists());
}

#[test]
fn a_path_that_cannot_be_is_refused_with_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let long = directory.path().join("s".repeat(120));
    let error = bind_error(&long).to_string();
    assert!(error.starts_with("cannot listen on ") && !error.contains("os error"), "{error}");
    fs::write(directory.path().join("file"), "").unwrap();
    let error = bind_error(&directory.path().join("file/s")).to_string();
    assert!(error.ends_with("not a directory") || error.ends_with("file exists"), "{error}");
}

#[test]
fn a_shutdown_before_the_start_ends_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let shutdown = Shutdown::new();
    assert!(!shutdown.is_triggered());
    shutdown.trigger();
    shutdown.trigger();
    agent::serve(&path, Arc::new(Fake::default()), &shutdown).unwrap();
    assert!(shutdown.is_triggered() && !path.exists());
}

#[test]
fn idle_connections_do_not_keep_the_server() {
    let mut server = Server::start();
    let idle: Vec<_> =
        (0..40).map(|_| std::os::unix::net::UnixStream::connect(&server.socket).unwrap()).collect();
    server.stop();
    drop(idle);
}

#[test]
fn no_daemon_is_one_sentence_with_the_fix() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let error = Client::new(&path).report().unwrap_err();
    let path = path.display();
    assert_eq!(error.to_string(), format!("no floodwayd answers on {path}; start it, or give its --socket"));
}

#[test]
fn a_daemon_that_hangs_up_is_no_answer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let hang_up = std::thread::spawn(move || drop(listener.accept().unwrap()));
    assert!(matches!(Client::new(&path).report(), Err(ClientError::Broken { .. })));
    hang_up.join().unwrap();
}
