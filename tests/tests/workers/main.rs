//! Several workers: what passes, what is dropped, and in which order, is what one worker would do, whoever has which queue
//! and whose turn it is.

mod alike;
mod behaviour;
mod meeting;
mod rings;

/// Tests whose figures are bounds of one worker, and so divided among several.
const DIVIDED: [&str; 4] = [
    "a_tenant_fills_its_own_quota_only",
    "fifty_thousand_flows_keep_their_own_verdicts",
    "icmp_errors_are_limited_by_rate",
    "refusals_take_half_of_a_quota_at_most",
];

/// Runs the tests in [`behaviour`] in a process where every rig has so many workers.
fn run_behaviour(workers: u16) {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this test"));
    command.env(scenarios::crew::WORKERS_VARIABLE, workers.to_string()).arg("behaviour::");
    command.args(DIVIDED.iter().flat_map(|name| ["--skip", name]));
    let output = command.output().expect("this test again");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let passed = said.lines().filter(|line| line.ends_with("... ok")).count();
    assert!(passed > 90, "{passed} tests with {workers} workers:\n{said}");
}

#[test]
fn with_two_workers() {
    run_behaviour(2);
}

#[test]
fn with_four_workers() {
    run_behaviour(4);
}
