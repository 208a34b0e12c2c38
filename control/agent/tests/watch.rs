//! Watching a policy directory, by real events of a real file system. Nothing here waits for a time: what has to come is
//! waited for, and what must not come is ruled out by something later that did.
#![allow(missing_docs, clippy::unwrap_used)]

mod fake;

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use agent::{
    Start,
    api::{ApplyRequest, By, ConfirmRequest, Outcome, PolicyStatus},
};
use fake::{FABRIC, PATIENCE, Server, apply, tenant};

/// A directory `p` with the files of one port, and a daemon that watches it.
struct Watched {
    root: tempfile::TempDir,
    server: Server,
}

impl Watched {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        make(&root.path().join("p"), 1);
        let server = Server::start_from(&start(root.path()));
        // From here on no change can be missed.
        server.wait_for(|status| status.watch.is_some());
        Self { root, server }
    }

    fn path(&self) -> PathBuf {
        self.root.path().join("p")
    }

    /// Digest of the generation, and what it has to be.
    #[track_caller]
    fn assert_runs(&self, generation: u32, port: u16) {
        let wanted = self.server.client().check(&agent::api::CheckRequest { sources: fake::sources(port) });
        assert_eq!(self.server.plane.wait_for(generation), wanted.unwrap().digest);
    }
}

fn start(root: &Path) -> Start {
    let state = Some(root.join("state"));
    Start { policy: root.join("p"), state, watch: true, generations_kept: 16 }
}

fn make(directory: &Path, port: u16) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("fabric.yaml"), FABRIC).unwrap();
    fs::write(directory.join("red.yaml"), tenant(port)).unwrap();
}

#[test]
fn a_file_that_is_written_is_applied() {
    let this = Watched::new();
    fs::write(this.path().join("red.yaml"), tenant(2)).unwrap();
    this.assert_runs(2, 2);
    // As many editors write: beside it, and renamed onto it.
    fs::write(this.path().join(".red.yaml.swp"), tenant(3)).unwrap();
    fs::rename(this.path().join(".red.yaml.swp"), this.path().join("red.yaml")).unwrap();
    this.assert_runs(3, 3);
    // As others do: the old one is moved away first.
    fs::rename(this.path().join("red.yaml"), this.path().join("red.yaml~")).unwrap();
    fs::write(this.path().join("red.yaml"), tenant(4)).unwrap();
    this.server.wait_for(|status| status.running.as_ref().is_some_and(|running| running.generation >= 4));
    let newest = this.server.plane.generations().len() as u32;
    this.assert_runs(newest, 4);
    let history = this.server.client().history().unwrap().generations;
    assert!(history.iter().skip(1).all(|entry| (entry.by, entry.outcome) == (By::Watch, Outcome::Confirmed)));
}

/// The kubelet: a new directory, a link to it beside the old link, and a rename.
#[test]
fn a_kubernetes_mount_is_followed() {
    let root = tempfile::tempdir().unwrap();
    let mount = root.path().join("p");
    make(&mount.join("..v1"), 1);
    symlink("..v1", mount.join("..data")).unwrap();
    for file in ["fabric.yaml", "red.yaml"] {
        symlink(Path::new("..data").join(file), mount.join(file)).unwrap();
    }
    let server = Server::start_from(&start(root.path()));
    server.wait_for(|status| status.watch.is_some());
    let this = Watched { root, server };
    for version in 2..6 {
        make(&mount.join(format!("..v{version}")), version);
        symlink(format!("..v{version}"), mount.join("..data_tmp")).unwrap();
        fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
        fs::remove_dir_all(mount.join(format!("..v{}", version - 1))).unwrap();
        this.assert_runs(version.into(), version);
    }
}

#[test]
fn a_directory_that_is_removed_and_made_again_is_followed() {
    let this = Watched::new();
    for port in 2..5 {
        fs::remove_dir_all(this.path()).unwrap();
        let status = this.server.wait_for(|status| status.refused.is_some());
        let error = status.refused.unwrap().error;
        assert!(error.ends_with("; the running program stays"), "{error}");
        // Out of sight and then there at once, so that there is no moment with half of it.
        make(&this.root.path().join("new"), port);
        fs::rename(this.root.path().join("new"), this.path()).unwrap();
        this.assert_runs(port.into(), port);
        assert_eq!(this.server.wait_for(|status| status.refused.is_none()).policy, PolicyStatus::Current);
    }
}

#[test]
fn a_link_to_a_directory_that_is_switched_is_followed() {
    let root = tempfile::tempdir().unwrap();
    make(&root.path().join("a"), 1);
    make(&root.path().join("b"), 2);
    symlink("a", root.path().join("p")).unwrap();
    let server = Server::start_from(&start(root.path()));
    server.wait_for(|status| status.watch.is_some());
    let this = Watched { root, server };
    symlink("b", this.root.path().join("next")).unwrap();
    fs::rename(this.root.path().join("next"), this.path()).unwrap();
    this.assert_runs(2, 2);
    // And what it leads to now is listened to.
    fs::write(this.root.path().join("b/red.yaml"), tenant(3)).unwrap();
    this.assert_runs(3, 3);
}

#[test]
fn bad_files_change_nothing_and_are_kept_in_the_status() {
    let this = Watched::new();
    let last_good = fs::read(this.root.path().join("state/last-good")).unwrap();
    fs::write(this.path().join("red.yaml"), tenant(2).replace("vni: 100", "vni: 0")).unwrap();
    let refused = this.server.wait_for(|status| status.refused.is_some()).refused.unwrap();
    assert!(
        refused.error.ends_with("the policy files are refused; the running program stays"),
        "{refused:?}"
    );
    let first = &refused.diagnostics.list[0];
    assert!(first.source.ends_with("p/red.yaml"), "{first}");
    assert_eq!((first.line, first.column), (6, 8));
    assert_eq!(this.server.plane.generations(), [1]);
    assert_eq!(fs::read(this.root.path().join("state/last-good")).unwrap(), last_good);
    fs::write(this.path().join("red.yaml"), tenant(2)).unwrap();
    this.assert_runs(2, 2);
    this.server.wait_for(|status| status.refused.is_none());
    assert_ne!(fs::read(this.root.path().join("state/last-good")).unwrap(), last_good);
}

#[test]
fn what_does_not_change_the_files_is_not_pushed() {
    let this = Watched::new();
    let reads = |count| move |status: &agent::api::Status| status.watch.as_ref().unwrap().reads >= count;
    fs::write(this.path().join("red.yaml"), tenant(1)).unwrap();
    this.server.wait_for(reads(2));
    fs::write(this.path().join("notes.txt"), "not a policy").unwrap();
    this.server.wait_for(reads(3));
    // Neither does it bring back what was applied over it.
    this.server.client().apply(&apply(7)).unwrap();
    File::open(this.path().join("red.yaml")).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    this.server.wait_for(reads(4));
    assert_eq!(this.server.plane.generations(), [1, 2]);
    fs::write(this.path().join("red.yaml"), tenant(2)).unwrap();
    this.assert_runs(3, 2);
}

#[test]
fn the_watch_waits_for_whoever_confirms() {
    let this = Watched::new();
    let client = this.server.client();
    client.apply(&ApplyRequest { confirm_s: Some(3600), ..apply(7) }).unwrap();
    fs::write(this.path().join("red.yaml"), tenant(2)).unwrap();
    // An apply of others is refused all the while, and so is the watch; it comes when the wait is over.
    assert!(client.apply(&apply(8)).unwrap_err().to_string().contains("to be confirmed"));
    assert_eq!(client.status().unwrap().unconfirmed.unwrap().generation, 2);
    client.confirm(&ConfirmRequest { generation: None }).unwrap();
    this.assert_runs(3, 2);
    assert_eq!(this.server.plane.generations(), [1, 2, 3]);
}

/// A start with a broken directory: what ran before runs, and the directory is taken once it is good.
#[test]
fn a_directory_that_is_mended_is_applied() {
    let mut this = Watched::new();
    fs::write(this.path().join("red.yaml"), tenant(2)).unwrap();
    this.assert_runs(2, 2);
    this.server.wait_for(|status| status.running.as_ref().is_some_and(|running| running.generation == 2));
    this.server.stop();
    fs::write(this.path().join("red.yaml"), "kind: [").unwrap();
    this.server = Server::start_from(&start(this.root.path()));
    let status = this.server.wait_for(|status| status.watch.is_some());
    assert_eq!((status.policy, status.running.unwrap().generation), (PolicyStatus::LastGood, 3));
    assert!(status.refused.unwrap().diagnostics.list[0].source.ends_with("p/red.yaml"));
    this.assert_runs(3, 2);
    fs::write(this.path().join("red.yaml"), tenant(4)).unwrap();
    this.assert_runs(4, 4);
    assert_eq!(this.server.wait_for(|status| status.refused.is_none()).policy, PolicyStatus::Current);
}

/// While one thread never stops to write: others are answered, pushes are few, and the last version wins.
#[test]
fn a_directory_that_flaps_starves_nobody() {
    let this = Watched::new();
    let (path, is_over) = (this.path().join("red.yaml"), AtomicBool::new(false));
    let start = Instant::now();
    let (writes, slowest) = std::thread::scope(|scope| {
        let flapping = scope.spawn(|| {
            let mut writes = 0u16;
            while !is_over.load(Ordering::Relaxed) && start.elapsed() < 2 * PATIENCE {
                writes = writes % 60_000 + 1;
                let mut file = OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
                file.write_all(tenant(writes).as_bytes()).unwrap();
                drop(file);
                // As fast as an event a millisecond, and leaves this machine to others.
                std::thread::park_timeout(Duration::from_millis(1));
            }
            writes
        });
        let mut slowest = Duration::ZERO;
        while this.server.client().status().unwrap().watch.unwrap().reads < 4 {
            let asked = Instant::now();
            this.server.client().report().unwrap();
            slowest = slowest.max(asked.elapsed());
            assert!(start.elapsed() < PATIENCE);
        }
        is_over.store(true, Ordering::Relaxed);
        (flapping.join().unwrap(), slowest)
    });
    let elapsed = start.elapsed();
    let reads = this.server.client().status().unwrap().watch.unwrap().reads;
    // A pause of half a second lies between two of them.
    assert!(u128::from(reads) <= 2 + elapsed.as_millis() / 500, "{reads} in {elapsed:?}");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    fs::write(&path, tenant(60_001)).unwrap();
    let wanted =
        this.server.client().check(&agent::api::CheckRequest { sources: fake::sources(60_001) }).unwrap();
    this.server
        .wait_for(|status| status.running.as_ref().is_some_and(|running| running.digest == wanted.digest));
    assert!(this.server.plane.generations().len() as u64 <= 2 + reads, "{writes} writes");
    assert!(!this.server.plane.overlapped());
}
