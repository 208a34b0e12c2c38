//! Addresses of a tenant whose packets go elsewhere, computed exactly: the boundaries of all hosts and prefixes of both
//! programs cut the addresses into atoms, all of which live at one place in either program.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use program::{Program, Tenant};
use serde::{Deserialize, Serialize};

use super::{
    classes::{AddressRange, atoms_of, extend},
    parts::hops_text,
};

/// Hosts and prefixes looked at before the rest is left out.
const LOOKS_MAX: usize = 50_000_000;
/// Most moves of one comparison.
const MOVES_MAX: usize = 1000;
/// What is said of addresses that nobody has.
const NOWHERE: &str = "nowhere";

/// All moves, as far as they were looked for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Moves {
    /// By tenant.
    pub list: Vec<Move>,
    /// True when there may be more.
    pub is_cut: bool,
}

/// Addresses of a tenant that go from one place to another. What they send from the old one is spoofed from then on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Move {
    /// Whose.
    pub tenant: String,
    /// Which.
    pub addresses: Vec<AddressRange>,
    /// Port or tunnel endpoint and the receiver's MAC, all of them when there are several, `gateway`, or `nowhere`.
    pub before: String,
    /// The same in the other program.
    pub after: String,
}

pub(super) fn compare(old: &Program, new: &Program) -> Moves {
    let named = |program: &'_ Program| -> BTreeSet<String> {
        program.tenants.iter().flatten().map(|tenant| tenant.name.clone()).collect()
    };
    let mut moves = Moves::default();
    let mut looks = LOOKS_MAX;
    for name in &named(old) | &named(new) {
        let [before, after] = [old, new].map(|program| View::of(program, &name));
        for (way, addresses) in changes(&before, &after, &mut looks, &mut moves.is_cut) {
            if moves.list.len() == MOVES_MAX {
                moves.is_cut = true;
                return moves;
            }
            moves.list.push(Move { tenant: name.clone(), addresses, before: way.0, after: way.1 });
        }
    }
    moves
}

struct View<'p> {
    program: &'p Program,
    tenant: Option<&'p Tenant>,
}

impl<'p> View<'p> {
    fn of(program: &'p Program, name: &str) -> Self {
        Self { program, tenant: program.tenants.iter().flatten().find(|tenant| tenant.name == name) }
    }

    fn prefixes(&self) -> impl Iterator<Item = ipnet::IpNet> + use<'p> {
        let tenant = self.tenant;
        let single = tenant.into_iter().flat_map(|tenant| {
            let hosts = tenant.endpoints.iter().map(|host| host.address);
            hosts.chain(tenant.gateways.iter().copied()).map(ipnet::IpNet::from)
        });
        single.chain(tenant.into_iter().flat_map(|tenant| tenant.routes.iter().map(|route| route.prefix)))
    }

    /// How many things one question is compared with, at most.
    fn cost(&self) -> usize {
        self.tenant.map_or(1, |tenant| 8 + tenant.gateways.len() + tenant.routes.len())
    }

    fn place(&self, address: IpAddr) -> String {
        let Some(tenant) = self.tenant else { return NOWHERE.into() };
        if tenant.gateways.contains(&address) {
            return "gateway".into();
        }
        match tenant.locate(address) {
            [] => NOWHERE.into(),
            hops => hops_text(self.program, hops),
        }
    }
}

type Changes = BTreeMap<(String, String), Vec<AddressRange>>;

fn changes(before: &View, after: &View, looks: &mut usize, is_cut: &mut bool) -> Changes {
    let mut found = Changes::new();
    for range in atoms_of(before.prefixes().chain(after.prefixes())) {
        let Some(left) = looks.checked_sub(before.cost() + after.cost()) else {
            *is_cut = true;
            break;
        };
        *looks = left;
        let way = (before.place(range.first), after.place(range.first));
        if way.0 != way.1 {
            extend(found.entry(way).or_default(), range);
        }
    }
    found
}

impl Move {
    /// True when the address is among them.
    pub fn covers(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|range| range.contains(address))
    }
}
