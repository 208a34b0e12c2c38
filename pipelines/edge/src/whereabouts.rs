//! Where the addresses of a tenant live, in the form in which misses look them up: its hosts and the prefixes behind them
//! as one table of longest prefixes for each family.

use std::net::IpAddr;

use ipnet::IpNet;
use program::{Place, Tenant};
use tables::lpm::Lpm;
use tables::prefix::{Address, Prefix};
use wire::Mac;

/// One tenant's.
pub(crate) struct Whereabouts {
    four: Family<u32>,
    six: Family<u128>,
}

struct Family<A> {
    lpm: Lpm<A>,
    /// By the number of the prefix.
    places: Box<[(Place, Mac)]>,
}

impl Whereabouts {
    pub(crate) fn of(tenant: &Tenant) -> Self {
        // Of equal prefixes the first counts: hosts before routes, as in `Tenant::locate`.
        let hosts = tenant.endpoints.iter().map(|host| (IpNet::from(host.address), (host.place, host.mac)));
        let routes = tenant.routes.iter().map(|route| (route.prefix, (Place::Vtep(route.vtep), route.mac)));
        let (mut four, mut six) = (Vec::new(), Vec::new());
        for (net, place) in hosts.chain(routes) {
            match net {
                IpNet::V4(net) => four.push((Prefix::new(net.addr().into(), net.prefix_len()), place)),
                IpNet::V6(net) => six.push((Prefix::new(net.addr().into(), net.prefix_len()), place)),
            }
        }
        Self { four: Family::of(four), six: Family::of(six) }
    }

    /// As [`Tenant::locate`].
    pub(crate) fn locate(&self, address: IpAddr) -> Option<(Place, Mac)> {
        match address {
            IpAddr::V4(address) => self.four.locate(address.into()),
            IpAddr::V6(address) => self.six.locate(address.into()),
        }
    }
}

impl<A: Address> Family<A> {
    fn of(known: Vec<(Prefix<A>, (Place, Mac))>) -> Self {
        let (prefixes, places): (Vec<_>, Vec<_>) = known.into_iter().unzip();
        Self { lpm: Lpm::build(&prefixes), places: places.into() }
    }

    fn locate(&self, address: A) -> Option<(Place, Mac)> {
        self.places.get(self.lpm.longest(address)? as usize).copied()
    }
}
