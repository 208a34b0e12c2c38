//! floodwayd as a process: started, asked, ended by SIGTERM.

use std::{
    fs::{self, File},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use agent::client::Client;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Longest start, with all drivers of DPDK's, and longest end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A daemon that answers. It is ended when dropped.
pub struct Daemon {
    child: Child,
    client: Client,
    socket: PathBuf,
    log: PathBuf,
}

/// A daemon that ended by itself, or never answered.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; 128 and the signal's number when a signal ended it.
    pub code: i32,
    /// All that it wrote.
    pub log: String,
}

impl Daemon {
    /// Starts `command`, a floodwayd that is to answer on `socket`, and returns when it does. It gets a process group of
    /// its own, so that Ctrl-C does not reach it; what it writes goes to `log`.
    ///
    /// # Errors
    /// When it ends before, or does not answer.
    ///
    /// # Panics
    /// When `log` cannot be written or the program cannot be run.
    pub fn start(mut command: Command, socket: &Path, log: &Path) -> Result<Self, Ended> {
        let file = File::create(log).expect("the log can be written");
        // The log is how it is known to be ready.
        command.env_remove("FLOODWAY_LOG");
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()));
        let mut daemon = Self { child, client: Client::new(socket), socket: socket.into(), log: log.into() };
        let start = Instant::now();
        // A second daemon on the socket of a first would have the first answer for it.
        while !(daemon.log().contains("ready") && daemon.client.report().is_ok()) {
            if let Ok(Some(status)) = daemon.child.try_wait() {
                return Err(Ended { code: code(status), log: daemon.log() });
            }
            if start.elapsed() > PATIENCE {
                return Err(Ended { code: -1, log: daemon.log() });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(daemon)
    }

    /// Speaks to it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where it answers.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends it a signal and returns its exit code, as in [`Ended`].
    ///
    /// # Errors
    /// When it had ended before, or does not end.
    pub fn end(&mut self, signal: Signal) -> Result<i32, String> {
        let failed = |error: std::io::Error| format!("floodwayd: {error}");
        if let Some(status) = self.child.try_wait().map_err(failed)? {
            return Err(format!("floodwayd had ended before, with {status}"));
        }
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, signal).map_err(|error| format!("cannot send {signal}: {error}"))?;
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().map_err(failed)? {
                return Ok(code(status));
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("floodwayd does not end on {signal}"));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.end(Signal::SIGTERM).is_err() {
            // It did not end in time.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Folder with the `floodwayd` and `floodway` of the running test, built if need be.
///
/// # Panics
/// When they do not build.
pub fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let test = std::env::current_exe().expect("a test is a program");
        let folder = test.ancestors().nth(2).expect("tests are in target/<profile>/deps").to_path_buf();
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let mut command = Command::new(cargo);
        command
            .args(["build", "--quiet", "-p", "floodwayd", "-p", "cli"])
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        if folder.ends_with("release") {
            command.arg("--release");
        }
        assert!(command.status().expect("cargo runs").success(), "floodwayd and floodway do not build");
        folder
    })
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The floodwayd over DPDK in the folder that `FLOODWAY_DPDK_PROGRAMS` names, or `None` and a printed reason.
///
/// # Panics
/// When there is none in that folder.
pub fn over_dpdk() -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("FLOODWAY_DPDK_PROGRAMS") else {
        println!("skipped: FLOODWAY_DPDK_PROGRAMS names no folder with a floodwayd over DPDK");
        return None;
    };
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: not root");
        return None;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    Some(fs::canonicalize(folder.join("floodwayd")).expect("a floodwayd in that folder"))
}
