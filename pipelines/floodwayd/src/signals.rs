//! SIGTERM and SIGINT end the daemon in order; a second one ends it at once.

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Triggers `shutdown` on the first signal.
pub fn end_on(shutdown: &agent::Shutdown) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("cannot take signals")?;
    let shutdown = shutdown.clone();
    let wait = move || {
        for signal in &mut signals {
            if shutdown.is_triggered() {
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            shutdown.trigger();
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).context("cannot start a thread")?;
    Ok(())
}
