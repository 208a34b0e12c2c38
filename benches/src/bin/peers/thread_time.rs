//! Time that a thread of another process was on its CPU: a busy machine blurs it less than the clock on the wall.

use std::path::PathBuf;

/// Processes that `pid` has started.
pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Of the first thread of `pid` whose name contains `name`, in nanoseconds.
pub fn named_thread_nanos(pid: u32, name: &str) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let is =
        |task: &PathBuf| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.contains(name));
    let task = tasks.filter_map(Result::ok).map(|task| task.path()).find(is)?;
    std::fs::read_to_string(task.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
}
