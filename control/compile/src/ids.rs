//! Who gets which id: the old one where there was one, else the next that was never used.

use std::{hash::Hash, net::IpAddr};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use policy::{Diagnostics, Place, Policy};
use program::{Program, TenantId, VtepId, limit};

use crate::error;

/// What a key of a policy means. Checked policies have a few thousand of each, so that a hash that is the same each time
/// does no harm.
pub(crate) type ByKey<K, V> = HashMap<K, V, FixedState>;

/// Ids by key, and the length of the table that they index.
pub(crate) struct Ids<K, I> {
    by_key: ByKey<K, I>,
    /// Entries of the table, holes among them.
    pub table_len: usize,
}

impl<K: Eq + Hash, I: Copy + Default> Ids<K, I> {
    /// The id of a key. Every key of the policy has one.
    pub fn get(&self, key: &K) -> I {
        self.by_key.get(key).copied().unwrap_or_default()
    }
}

pub(crate) fn tenants<'a>(
    policy: &'a Policy,
    previous: &'a Program,
    errors: &mut Diagnostics,
) -> Ids<&'a str, TenantId> {
    let old: ByKey<&str, usize> = used(&previous.tenants, |tenant| tenant.name.as_str());
    let wanted = policy.tenants.iter().map(|tenant| (&*tenant.name.value, policy.place(tenant.name.at)));
    let bound = Bound { what: "tenants", entries_max: limit::TENANTS };
    assign(wanted, &old, previous.tenants.len(), &bound, TenantId, errors)
}

pub(crate) fn vteps(policy: &Policy, previous: &Program, errors: &mut Diagnostics) -> Ids<IpAddr, VtepId> {
    let old: ByKey<IpAddr, usize> = used(&previous.vteps, |vtep| vtep.address);
    let wanted = policy.fabric.vteps.iter().map(|vtep| (vtep.address.value, policy.place(vtep.address.at)));
    let bound = Bound { what: "tunnel endpoints", entries_max: limit::VTEPS };
    assign(wanted, &old, previous.vteps.len(), &bound, VtepId, errors)
}

fn used<'p, T, K: Eq + Hash>(table: &'p [Option<T>], key: impl Fn(&'p T) -> K) -> ByKey<K, usize> {
    let entries = table.iter().enumerate().filter_map(|(index, entry)| Some((entry.as_ref()?, index)));
    entries.map(|(entry, index)| (key(entry), index)).collect()
}

struct Bound {
    what: &'static str,
    entries_max: usize,
}

fn assign<'p, K: Eq + Hash, I>(
    wanted: impl Iterator<Item = (K, Place<'p>)>,
    old: &ByKey<K, usize>,
    old_len: usize,
    bound: &Bound,
    id: fn(u16) -> I,
    errors: &mut Diagnostics,
) -> Ids<K, I> {
    let mut ids = Ids { by_key: ByKey::default(), table_len: old_len };
    for (key, place) in wanted {
        let index = old.get(&key).copied().unwrap_or(ids.table_len);
        let Some(short) = u16::try_from(index).ok().filter(|_| index < bound.entries_max) else {
            let Bound { what, entries_max } = bound;
            let message = format!("no id is left: floodwayd has had {entries_max} {what} since it started");
            errors.push(error(place, message).with_help("restart floodwayd to number them anew"));
            break;
        };
        ids.table_len = ids.table_len.max(index + 1);
        ids.by_key.insert(key, id(short));
    }
    ids
}
