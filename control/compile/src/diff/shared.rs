//! Tenants whose rules the two programs share: nothing that rules say of them can differ, so that a plan costs what
//! changes.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use program::{PlacedSet, Port, Program, RuleListId, RuleSet, TenantId};

use crate::ids::ByKey;

/// Tenants whose ports have the same names in both programs and ask the same lists of the same set.
#[derive(Default)]
pub(super) struct Shared<'p> {
    tenants: HashSet<&'p str, FixedState>,
    ports: HashSet<&'p str, FixedState>,
}

/// What the rules of a tenant say to its ports, by their names.
struct Asked<'p> {
    set: &'p Arc<RuleSet>,
    /// Name and lists of each port, as places in the set.
    ports: Vec<(&'p str, [u32; 2])>,
}

impl<'p> Shared<'p> {
    pub fn of(old: &Program, new: &'p Program) -> Self {
        let before = asked(old);
        let mut shared = Self::default();
        for (name, after) in asked(new) {
            if before.get(name).is_some_and(|before| before.is_same(&after)) {
                shared.tenants.insert(name);
                shared.ports.extend(after.ports.iter().map(|(port, _)| *port));
            }
        }
        shared
    }

    pub fn has_tenant(&self, name: &str) -> bool {
        self.tenants.contains(name)
    }

    /// True for a port of such a tenant, which is that tenant's in both programs.
    pub fn has_port(&self, name: &str) -> bool {
        self.ports.contains(name)
    }
}

impl Asked<'_> {
    fn is_same(&self, other: &Asked) -> bool {
        Arc::ptr_eq(self.set, other.set) && self.ports == other.ports
    }
}

/// By the tenant's name. A tenant that asks another's lists is left out: no compiled one does.
fn asked(program: &Program) -> ByKey<&str, Asked<'_>> {
    let mut ports: ByKey<TenantId, Vec<&Port>> = ByKey::default();
    for port in program.ports.iter().flatten() {
        ports.entry(port.tenant).or_default().push(port);
    }
    let nobody = Vec::new();
    let of = |placed| asked_by(program, placed, ports.get(&placed.tenant).unwrap_or(&nobody));
    program.rules.placed().iter().filter_map(of).collect()
}

fn asked_by<'p>(
    program: &'p Program,
    placed: &'p PlacedSet,
    ports: &[&'p Port],
) -> Option<(&'p str, Asked<'p>)> {
    let named = |port: &&'p Port| {
        let lists = [place(placed, port.egress)?, place(placed, port.ingress)?];
        Some((program.port_name(port.id), lists))
    };
    let mut ports: Vec<_> = ports.iter().map(named).collect::<Option<_>>()?;
    ports.sort_unstable();
    Some((&program.tenant(placed.tenant)?.name, Asked { set: &placed.set, ports }))
}

/// Where a list stands in a set.
fn place(placed: &PlacedSet, list: RuleListId) -> Option<u32> {
    let place = list.0.checked_sub(placed.first_list.0)?;
    ((place as usize) < placed.set.lists.len()).then_some(place)
}
