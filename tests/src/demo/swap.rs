//! A policy that is edited and applied while packets pass.

use program::{DropReason, Report};

use super::{
    Demo,
    checks::Seen,
    counts, policy_edits,
    world::{Answer, Bulk, Outcome, REMOTE, Tenant},
};

/// What happened around the swap.
pub struct Swap {
    before: Report,
    after: Report,
    /// Generation and workers' generations right after `apply` returned.
    applied: Report,
    bulk: Bulk,
    /// Pings answered before the swap, and after it.
    answered: (u16, u16),
    /// `file:line` of the new rule, and what the flow list says refused the ping.
    rule: (String, String),
}

/// Pings before the swap and after it.
const PINGS: u16 = 3;

impl Swap {
    /// Swaps, and looks at who runs what.
    pub fn acknowledged(demo: &mut Demo) -> Outcome<Seen> {
        let swap = Self::run(demo)?;
        let Self { before, applied, bulk, .. } = demo.swap.insert(swap);
        let all = applied.workers.iter().all(|worker| worker.generation == applied.generation);
        let text = format!(
            "generation {} -> {}, {}; the transfer went on: {:.0} Mb/s ({})",
            before.generation,
            applied.generation,
            if all { "every worker runs it" } else { "not every worker runs it" },
            bulk.rate_mbps,
            bulk.note
        );
        Ok(Seen::new(all && applied.generation == before.generation + 1 && bulk.rate_mbps > 0.0, text))
    }

    /// From before the transfer to after it: the pings that the new rule denies are the only drops.
    pub fn loses_nothing(demo: &mut Demo) -> Outcome<Seen> {
        let Self { before, after, .. } = demo.swap.as_ref().ok_or("nothing was swapped")?;
        let (was, is) = (counts::balance(before), counts::balance(after));
        let (taken, left, dropped) = (is.0 - was.0, is.1 - was.1, is.2 - was.2);
        let denied = denied(before, after);
        let text = format!("{taken} = {left} + {dropped}, of which {denied} pings that the new rule denies");
        Ok(Seen::new(taken == left + dropped && dropped == denied && denied == u64::from(PINGS), text))
    }

    /// Each ping after the swap is refused, by the rule that was added.
    pub fn takes_effect(demo: &mut Demo) -> Outcome<Seen> {
        let Self { before, after, answered, rule, .. } = demo.swap.as_ref().ok_or("nothing was swapped")?;
        let denied = denied(before, after);
        let text = format!(
            "pings answered: {} before, {} after, policy-deny +{denied} by {}",
            answered.0, answered.1, rule.1
        );
        let as_expected = *answered == (PINGS, 0) && denied == u64::from(PINGS) && rule.0 == rule.1;
        Ok(Seen::new(as_expected, text))
    }

    fn run(demo: &mut Demo) -> Outcome<Self> {
        let edited = policy_edits::deny_ping(&demo.paths.policy, demo.paths.scratch.join("edited"))?;
        let pattern = Tenant::Red.pattern();
        let answered_before = demo.world.ping(Tenant::Red, REMOTE, PINGS, pattern)?;
        let before = demo.world.report()?;
        demo.world.start_bulk(Tenant::Red)?;
        expect_applied(demo.world.apply(&edited.directory)?)?;
        let applied = demo.world.report()?;
        let answered_after = demo.world.ping(Tenant::Red, REMOTE, PINGS, pattern)?;
        let bulk = demo.world.finish_bulk()?;
        let after = demo.world.report()?;
        let flows = demo.world.flows()?;
        expect_applied(demo.world.apply(&demo.paths.policy)?)?;
        let is_denied = |flow: &&program::FlowRecord| {
            flow.tenant == "red"
                && flow.service.starts_with("icmp")
                && flow.verdict == DropReason::PolicyDeny.name()
        };
        let rule = flows.iter().find(is_denied).map_or_else(|| "no flow".into(), |flow| flow.rule.clone());
        let answered = (answered_before, answered_after);
        Ok(Self { before, after, applied, bulk, answered, rule: (edited.origin, rule) })
    }
}

fn expect_applied(answer: Answer) -> Outcome<()> {
    if answer.code == 0 { Ok(()) } else { Err(format!("apply ended with {}: {}", answer.code, answer.text)) }
}

fn denied(before: &Report, after: &Report) -> u64 {
    let count = |report| counts::dropped(report, Tenant::Red, DropReason::PolicyDeny);
    count(after) - count(before)
}
