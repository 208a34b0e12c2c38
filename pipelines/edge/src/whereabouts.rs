//! Where the addresses of a tenant live, in the form in which misses look them up: its hosts and the prefixes behind them
//! as one table of longest prefixes for each family.

use std::net::IpAddr;

use ipnet::IpNet;
use program::{Hop, Tenant};
use tables::lpm::Lpm;
use tables::prefix::{Address, Prefix};

/// One tenant's.
pub(crate) struct Whereabouts {
    four: Family<u32>,
    six: Family<u128>,
}

struct Family<A> {
    lpm: Lpm<A>,
    /// By the number of the prefix, where its hops begin; one more, for the end.
    firsts: Box<[u32]>,
    hops: Box<[Hop]>,
}

impl Whereabouts {
    pub(crate) fn of(tenant: &Tenant) -> Self {
        // Of equal prefixes the first counts: hosts before routes, as in `Tenant::locate`.
        let hosts =
            tenant.endpoints.iter().map(|host| (IpNet::from(host.address), std::slice::from_ref(&host.hop)));
        let routes = tenant.routes.iter().map(|route| (route.prefix, &route.hops[..]));
        let (mut four, mut six) = (Vec::new(), Vec::new());
        for (net, hops) in hosts.chain(routes) {
            match net {
                IpNet::V4(net) => four.push((Prefix::new(net.addr().into(), net.prefix_len()), hops)),
                IpNet::V6(net) => six.push((Prefix::new(net.addr().into(), net.prefix_len()), hops)),
            }
        }
        Self { four: Family::of(four), six: Family::of(six) }
    }

    /// As [`Tenant::locate`].
    pub(crate) fn locate(&self, address: IpAddr) -> &[Hop] {
        match address {
            IpAddr::V4(address) => self.four.locate(address.into()),
            IpAddr::V6(address) => self.six.locate(address.into()),
        }
    }
}

impl<A: Address> Family<A> {
    fn of(known: Vec<(Prefix<A>, &[Hop])>) -> Self {
        let prefixes: Vec<_> = known.iter().map(|(prefix, _)| *prefix).collect();
        let mut firsts = vec![0];
        let mut hops = Vec::new();
        for (_, of_prefix) in &known {
            hops.extend_from_slice(of_prefix);
            firsts.push(hops.len() as u32);
        }
        Self { lpm: Lpm::build(&prefixes), firsts: firsts.into(), hops: hops.into() }
    }

    fn locate(&self, address: A) -> &[Hop] {
        let Some(number) = self.lpm.longest(address) else { return &[] };
        match self.firsts.get(number as usize..) {
            Some(&[first, end, ..]) => self.hops.get(first as usize..end as usize).unwrap_or_default(),
            _ => &[],
        }
    }
}
