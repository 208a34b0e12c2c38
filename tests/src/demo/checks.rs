//! The list of expectations, and how each is checked.

use std::fs;

use program::DropReason;

use super::{
    Demo, counts, policy_edits,
    roce::Replay,
    swap::Swap,
    world::{Bulk, FABRIC_VTEP, GATEWAY, HOST, Outcome, Place, REMOTE, Tenant, VTEP},
};
use crate::cuts::cut;
use crate::frames::{Ends, tunnel};
use wire::Mac;

/// What was seen, in words, and whether it is as expected.
pub struct Seen {
    /// In words.
    pub text: String,
    /// As expected.
    pub as_expected: bool,
}

/// One expectation.
pub struct Check {
    /// In words.
    pub expectation: &'static str,
    /// Looks; an error means that nothing could be seen.
    pub run: fn(&mut Demo) -> Outcome<Seen>,
}

/// All of them, in the order in which they are checked.
#[rustfmt::skip]
pub const CHECKS: &[Check] = &[
    Check { expectation: "red pings its remote host, 5 of 5", run: |demo| ping(demo, Tenant::Red, REMOTE) },
    Check { expectation: "blue pings its own remote host: the same addresses, 5 of 5", run: |demo| ping(demo, Tenant::Blue, REMOTE) },
    Check { expectation: "red's gateway, which is floodway, answers 5 of 5", run: |demo| ping(demo, Tenant::Red, GATEWAY) },
    Check { expectation: "a ping of 1,200 bytes in three fragments, the last one first, is answered", run: ping_in_fragments },
    Check { expectation: "each remote host sees its own tenant's packets only", run: remotes_are_apart },
    Check { expectation: "red moves bulk data over TCP to its remote host", run: |demo| bulk(demo, Tenant::Red) },
    Check { expectation: "blue moves bulk data over TCP to its remote host", run: |demo| bulk(demo, Tenant::Blue) },
    Check { expectation: "red cannot reach blue, by address or by forging: all dropped and counted", run: red_cannot_reach_blue },
    Check { expectation: "TCP 9999, which a rule denies, is refused: policy-deny counts each SYN", run: denied_port },
    Check { expectation: "floodway show flows names the file and line of that rule", run: denied_flow_names_its_rule },
    Check { expectation: "TCP 8080, of which no rule speaks, is dropped as policy-default", run: undeclared_port },
    Check { expectation: "a spoofed source address is dropped as spoofed-address", run: spoofed_address },
    Check { expectation: "a spoofed source MAC is dropped as spoofed-mac", run: spoofed_mac },
    Check { expectation: "replayed RoCEv2 arrives unchanged, its ICRC right", run: Replay::arrives },
    Check { expectation: "RoCEv2: the UDP source port is the sender's", run: Replay::keeps_source_port },
    Check { expectation: "RoCEv2: outer source ports from 49152, constant for a QP, apart between QPs", run: Replay::outer_ports },
    Check { expectation: "a policy edited and applied during a bulk transfer: every worker runs it", run: Swap::acknowledged },
    Check { expectation: "no packet is lost to the swap: received = sent + drops, no other drops", run: Swap::loses_nothing },
    Check { expectation: "the new rule ends a flow that was allowed, at once", run: Swap::takes_effect },
    Check { expectation: "a policy with errors is refused whole, each error with file:line:column", run: bad_policy },
    Check { expectation: "after the refusal the running program stays and carries packets", run: program_stays },
    Check { expectation: "received = sent + drops over all that was sent", run: balance },
    Check { expectation: "SIGTERM ends floodwayd with 0 and nothing is left behind", run: stop },
];

/// In the payload of whatever red forges.
const FORGED: &[u8] = b"from red to blue";
/// Frames of each kind that is forged or not allowed.
const COPIES: usize = 5;

impl Seen {
    /// Both at once.
    pub fn new(as_expected: bool, text: impl Into<String>) -> Self {
        Self { text: text.into(), as_expected }
    }
}

fn ping(demo: &mut Demo, tenant: Tenant, target: [u8; 4]) -> Outcome<Seen> {
    let answered = demo.world.ping(tenant, target, 5, tenant.pattern())?;
    Ok(Seen::new(answered == 5, format!("{answered} of 5 answered")))
}

/// The remote host puts together what floodway has sent on, and answers.
fn ping_in_fragments(demo: &mut Demo) -> Outcome<Seen> {
    const ID: u16 = 0x4f57;
    let mut fragments = cut(&long_ping(ID), 0x1dea, &[400, 800]);
    fragments.reverse();
    demo.world.listen(&[Place::Host(Tenant::Red)])?;
    demo.world.inject(Tenant::Red, &fragments)?;
    demo.world.ping(Tenant::Red, REMOTE, 1, Tenant::Red.pattern())?;
    let is_answer = |frame: &&Vec<u8>| {
        frame.len() > 1_200 && frame[23] == 1 && frame[34] == 0 && frame[38..40] == ID.to_be_bytes()
    };
    let answers = demo.world.heard(Place::Host(Tenant::Red))?.iter().filter(is_answer).count();
    Ok(Seen::new(answers == 1, format!("{} fragments sent, {answers} of 1 answered", fragments.len())))
}

/// An echo request of red's with 1,200 bytes of data.
fn long_ping(id: u16) -> Vec<u8> {
    let mut frame = Tenant::Red.ends().ping(id, 1, 64);
    frame.resize(42 + 1_200, Tenant::Red.pattern());
    let len = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&len.to_be_bytes());
    let is_filled = wire::checksum::fill_ipv4_header(&mut frame[14..])
        && wire::parse(&frame).is_ok_and(|parsed| wire::checksum::fill_l4(&mut frame, &parsed));
    debug_assert!(is_filled, "an echo request has two sums");
    frame
}

fn remotes_are_apart(demo: &mut Demo) -> Outcome<Seen> {
    demo.world.listen(&[Place::Remote(Tenant::Red), Place::Remote(Tenant::Blue)])?;
    for tenant in Tenant::ALL {
        demo.world.ping(tenant, REMOTE, 5, tenant.pattern())?;
    }
    let mut own = Vec::new();
    let mut foreign = 0;
    for (tenant, other) in [(Tenant::Red, Tenant::Blue), (Tenant::Blue, Tenant::Red)] {
        let frames = demo.world.heard(Place::Remote(tenant))?;
        let requests = |of: Tenant| {
            let is = |frame: &&Vec<u8>| frame[6..12] == of.mac().0 && is_filled_with(frame, of.pattern());
            frames.iter().filter(is).count()
        };
        own.push(requests(tenant));
        let is_foreign =
            |frame: &&Vec<u8>| frame[6..12] == other.mac().0 || is_filled_with(frame, other.pattern());
        foreign += frames.iter().filter(is_foreign).count();
    }
    let text = format!("red's sees {} of red, blue's {} of blue, {foreign} of the other", own[0], own[1]);
    Ok(Seen::new(own == [5, 5] && foreign == 0, text))
}

/// True when sixteen bytes in a row have that value.
fn is_filled_with(frame: &[u8], pattern: u8) -> bool {
    frame.windows(16).any(|bytes| bytes.iter().all(|byte| *byte == pattern))
}

fn bulk(demo: &mut Demo, tenant: Tenant) -> Outcome<Seen> {
    demo.world.start_bulk(tenant)?;
    let Bulk { rate_mbps, bytes, note } = demo.world.finish_bulk()?;
    let text = format!("{:.1} MB at {rate_mbps:.0} Mb/s ({note})", bytes as f64 / 1e6);
    Ok(Seen::new(rate_mbps > 0.0 && bytes > 0, text))
}

fn red_cannot_reach_blue(demo: &mut Demo) -> Outcome<Seen> {
    let before = demo.world.report()?;
    demo.world.listen(&[Place::Host(Tenant::Blue), Place::Remote(Tenant::Blue), Place::Fabric])?;
    let frames: Vec<_> = forgeries().into_iter().flat_map(|frame| vec![frame; COPIES]).collect();
    demo.world.inject(Tenant::Red, &frames)?;
    // What red's frames could have set off is there before these answers are.
    demo.world.ping(Tenant::Red, REMOTE, 1, Tenant::Red.pattern())?;
    demo.world.ping(Tenant::Blue, REMOTE, 1, Tenant::Blue.pattern())?;
    let mut reached = 0;
    for place in [Place::Host(Tenant::Blue), Place::Remote(Tenant::Blue), Place::Fabric] {
        reached += demo.world.heard(place)?.iter().filter(|frame| holds(frame, FORGED)).count();
    }
    let after = demo.world.report()?;
    let dropped = counts::dropped_in_all(&after) - counts::dropped_in_all(&before);
    let reasons = counts::reasons(&before, &after).join(", ");
    let text = format!(
        "{} sent in {} ways, {reached} arrived, {dropped} dropped: {reasons}",
        frames.len(),
        forgeries().len()
    );
    Ok(Seen::new(reached == 0 && dropped == frames.len() as u64, text))
}

/// Ways in which red might try to reach blue's host or blue's remote.
fn forgeries() -> Vec<Vec<u8>> {
    let (red, blue) = (Tenant::Red.ends(), Tenant::Blue.ends());
    let roce = |ends: Ends| ends.roce(49_152, 0x12, FORGED);
    let to_host = Ends { dst_mac: Tenant::Blue.mac(), dst: HOST, ..red };
    let to_remote = Ends { dst_mac: Tenant::Blue.remote_mac(), ..red };
    let broadcast = Ends { dst_mac: Mac::BROADCAST, ..to_host };
    let as_blue = roce(blue);
    let into_blue = |dst| tunnel(Ends { dst, ..red }, 0, Tenant::Blue.vni(), &as_blue);
    let mut tagged = roce(to_remote);
    tagged.splice(12..12, [0x81, 0x00, 0, Tenant::Blue.vni() as u8]);
    vec![
        roce(to_host),
        roce(to_remote),
        roce(broadcast),
        as_blue.clone(),
        roce(blue.reversed()),
        into_blue(VTEP),
        into_blue(FABRIC_VTEP),
        tagged,
    ]
}

fn holds(frame: &[u8], part: &[u8]) -> bool {
    frame.windows(part.len()).any(|bytes| bytes == part)
}

fn denied_port(demo: &mut Demo) -> Outcome<Seen> {
    let before = demo.world.report()?;
    demo.world.listen(&[Place::Host(Tenant::Red), Place::Remote(Tenant::Red)])?;
    let connected = demo.world.connect(Tenant::Red, 9999)?;
    let is_syn =
        |frame: &&Vec<u8>| frame.len() > 47 && frame[23] == 6 && frame[36..38] == 9999_u16.to_be_bytes();
    let sent = demo.world.heard(Place::Host(Tenant::Red))?.iter().filter(is_syn).count();
    let arrived = demo.world.heard(Place::Remote(Tenant::Red))?.iter().filter(is_syn).count();
    let after = demo.world.report()?;
    let denied = risen(&before, &after, DropReason::PolicyDeny);
    let fate = if connected { "connected" } else { "not connected" };
    let text = format!("{fate}; {sent} SYNs sent, {arrived} arrived, policy-deny +{denied}");
    Ok(Seen::new(!connected && sent > 0 && arrived == 0 && denied == sent as u64, text))
}

fn denied_flow_names_its_rule(demo: &mut Demo) -> Outcome<Seen> {
    let file = demo.paths.policy.join("red.yaml");
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let line = text.lines().position(|line| line.trim() == "- action: Deny").map_or(0, |index| index + 1);
    let expected = format!("{}:{line}", file.display());
    let flows = demo.world.flows()?;
    let denied = flows.iter().find(|flow| flow.tenant == "red" && flow.service.ends_with("> 9999"));
    let Some(flow) = denied else {
        let services: Vec<&str> = flows.iter().map(|flow| flow.service.as_str()).collect();
        return Err(format!("no flow of red's to TCP 9999 among {services:?}"));
    };
    let text = format!("{} {}: {} by {}", flow.tenant, flow.service, flow.verdict, flow.rule);
    Ok(Seen::new(flow.verdict == DropReason::PolicyDeny.name() && flow.rule == expected, text))
}

fn undeclared_port(demo: &mut Demo) -> Outcome<Seen> {
    let frames = (0..COPIES as u16).map(|n| Tenant::Red.ends().tcp((40_000 + n, 8080), "S", &[])).collect();
    all_dropped(demo, frames, DropReason::PolicyDefault)
}

fn spoofed_address(demo: &mut Demo) -> Outcome<Seen> {
    let ends = Ends { src: [10, 1, 0, 99], ..Tenant::Red.ends() };
    all_dropped(demo, vec![ends.roce(49_152, 0x12, FORGED); COPIES], DropReason::SpoofedAddress)
}

fn spoofed_mac(demo: &mut Demo) -> Outcome<Seen> {
    let ends = Ends { src_mac: Mac([2, 0, 0, 0, 0x0a, 0x99]), ..Tenant::Red.ends() };
    all_dropped(demo, vec![ends.roce(49_152, 0x12, FORGED); COPIES], DropReason::SpoofedMac)
}

/// Red sends frames, none of which may arrive: each is counted once, for that reason.
fn all_dropped(demo: &mut Demo, frames: Vec<Vec<u8>>, reason: DropReason) -> Outcome<Seen> {
    let before = demo.world.report()?;
    demo.world.listen(&[Place::Remote(Tenant::Red)])?;
    demo.world.inject(Tenant::Red, &frames)?;
    demo.world.ping(Tenant::Red, REMOTE, 1, Tenant::Red.pattern())?;
    let heard = demo.world.heard(Place::Remote(Tenant::Red))?;
    let arrived = heard.iter().filter(|frame| frames.iter().any(|sent| frame.starts_with(sent))).count();
    let after = demo.world.report()?;
    let risen = risen(&before, &after, reason);
    let in_all = counts::dropped_in_all(&after) - counts::dropped_in_all(&before);
    let sent = frames.len() as u64;
    let text = format!("{sent} sent, {arrived} arrived, {} +{risen}", reason.name());
    Ok(Seen::new(arrived == 0 && risen == sent && in_all == sent, text))
}

fn risen(before: &program::Report, after: &program::Report, reason: DropReason) -> u64 {
    counts::dropped(after, Tenant::Red, reason) - counts::dropped(before, Tenant::Red, reason)
}

fn bad_policy(demo: &mut Demo) -> Outcome<Seen> {
    let (directory, places) =
        policy_edits::with_errors(&demo.paths.policy, demo.paths.scratch.join("broken"))?;
    let before = demo.world.report()?.generation;
    let answer = demo.world.apply(&directory)?;
    let after = demo.world.report()?.generation;
    let named = places.iter().filter(|place| answer.text.contains(&format!("{place}: error"))).count();
    let text = format!(
        "exit {}; {named} of {} errors named; generation {before} -> {after}",
        answer.code,
        places.len()
    );
    Ok(Seen::new(answer.code == 1 && named == places.len() && before == after, text))
}

fn program_stays(demo: &mut Demo) -> Outcome<Seen> {
    let report = demo.world.report()?;
    let runs = report.workers.iter().all(|worker| worker.generation == report.generation);
    let answered = demo.world.ping(Tenant::Red, REMOTE, 3, Tenant::Red.pattern())?;
    let workers = if runs { "every worker runs" } else { "not every worker runs" };
    let text = format!("{workers} generation {}; {answered} of 3 pings answered", report.generation);
    Ok(Seen::new(runs && answered == 3, text))
}

fn balance(demo: &mut Demo) -> Outcome<Seen> {
    let (taken, left, dropped) = counts::balance(&demo.world.report()?);
    Ok(Seen::new(taken == left + dropped, format!("{taken} = {left} + {dropped}")))
}

fn stop(demo: &mut Demo) -> Outcome<Seen> {
    let (code, left) = demo.world.stop()?;
    let text = if left.is_empty() { "nothing left behind".into() } else { left.join("; ") };
    Ok(Seen::new(code == 0 && left.is_empty(), format!("exit {code}; {text}")))
}
