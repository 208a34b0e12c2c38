//! Kind `Statement`: what must be true of all packets from one end to another, for `floodway verify` to prove.
//!
//! A statement changes no program: the compile step does not look at it.

use std::collections::BTreeMap;

use crate::{
    Name, Peer, PortSelector, Position, Service, Spanned, Tenant,
    documents::Documents,
    has_labels,
    read::{Fields, Read, Report, word},
    suggest::did_you_mean,
    yaml::Node,
};

use super::tenant_policy::{read_block, warn_of_empty};

/// Something that must be true of all packets from one end to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// Its name, unique among statements.
    pub name: Spanned<Name>,
    /// What must become of the packets.
    pub expect: Expect,
    /// Who sends them.
    pub from: End,
    /// Who they are for.
    pub to: End,
    /// What they are. `None` is any packet; an empty list is none.
    pub services: Option<Vec<Service>>,
}

/// What must become of all packets of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// Each is let through.
    Allow,
    /// Not one is let through.
    Deny,
}

/// One end of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// Whose hosts.
    pub tenant: Spanned<Name>,
    /// Which of them.
    pub hosts: Hosts,
}

/// Some hosts of a tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hosts {
    /// All, here and elsewhere.
    All,
    /// Those at these ports.
    Ports(PortSelector),
    /// Those of these addresses: an `ipBlock` or a `remote`.
    Peer(Peer),
}

impl Statement {
    pub(crate) fn read(name: Spanned<Name>, spec: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(spec, "the spec of a Statement", report)?;
        let expect = fields.required("expect");
        let from = fields.required_node("from");
        let to = fields.required_node("to");
        warn_of_empty(&mut fields, "services", "no packet is meant; leave the field out to mean all");
        let services = fields.optional("services");
        let is_whole = fields.finish();
        let from = from.and_then(|node| read_end(node, None, report));
        let own = from.as_ref().map(|from| &from.tenant);
        let to = to.and_then(|node| read_end(node, Some(own), report));
        let statement = Self { name, expect: expect?, from: from?, to: to?, services };
        statement.refuse_allow_between_tenants(report);
        // Without what could not be read, the statement would say something else.
        is_whole.then_some(statement)
    }

    fn refuse_allow_between_tenants(&self, report: &mut Report) {
        let (from, to) = (&self.from.tenant, &self.to.tenant);
        if self.expect == Expect::Allow && from.value != to.value {
            let message = format!("no packet goes from tenant {} to tenant {}", from.value, to.value);
            report.error(to.at, message).help("between tenants only `expect: deny` can be true");
        }
    }
}

impl Read for Expect {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        word(node, "an expectation", &[("allow", Self::Allow), ("deny", Self::Deny)], report)
    }
}

/// The tenant may be left out where there is a default, which may be one that could not be read.
fn read_end(node: &Node, default: Option<Option<&Spanned<Name>>>, report: &mut Report) -> Option<End> {
    let mut fields = Fields::of(node, "an end of a statement", report)?;
    let tenant = match default {
        Some(default) => match fields.node("tenant") {
            Some(node) => Read::read(node, fields.report),
            None => default.cloned(),
        },
        None => fields.required("tenant"),
    };
    let ports = fields.node("ports");
    let block = fields.node("ipBlock");
    let remote = fields.node("remote");
    let at = fields.at();
    let is_whole = fields.finish();
    let hosts = match (ports, block, remote) {
        (None, None, None) => Some(Hosts::All),
        (Some(ports), None, None) => Read::read(ports, report).map(Hosts::Ports),
        (None, Some(block), None) => read_block(block, report).map(Hosts::Peer),
        (None, None, Some(remote)) => Read::read(remote, report).map(|name| Hosts::Peer(Peer::Remote(name))),
        _ => {
            report.error(at, "an end has at most one of `ports`, `ipBlock` and `remote`");
            None
        }
    };
    Some(End { tenant: tenant?, hosts: hosts? }).filter(|_| is_whole)
}

/// Names are given once, and what statements name exists.
pub(crate) fn check(documents: &Documents, report: &mut Report) {
    let tenants: BTreeMap<&str, &Tenant> =
        documents.tenants.iter().map(|tenant| (&**tenant.name, &**tenant)).collect();
    let mut seen: BTreeMap<&Name, Position> = BTreeMap::new();
    for statement in &documents.statements {
        let name = &statement.name;
        let first = *seen.entry(&name.value).or_insert(name.at);
        if first != name.at {
            let message = format!("statement {} is given twice", name.value);
            report.error(name.at, message).related(first, "it is first used here");
        }
        statement.from.check(&tenants, documents, report);
        // A tenant that was left out is that of `from`, and wrong once.
        if statement.to.tenant.at != statement.from.tenant.at || tenants.contains_key(&**statement.to.tenant)
        {
            statement.to.check(&tenants, documents, report);
        }
    }
}

impl End {
    fn check(&self, tenants: &BTreeMap<&str, &Tenant>, documents: &Documents, report: &mut Report) {
        match tenants.get(&**self.tenant) {
            Some(tenant) if tenant.is_whole => self.check_hosts(tenant, report),
            None if !documents.unread.tenants => {
                unknown("tenant", &self.tenant, tenants.keys().copied(), report);
            }
            _ => {}
        }
    }

    fn check_hosts(&self, tenant: &Tenant, report: &mut Report) {
        let of = |what: &str| format!("{what} of tenant {}:", tenant.name.value);
        match &self.hosts {
            Hosts::Ports(PortSelector::Named(names)) => {
                for name in names.iter().filter(|name| tenant.port(name).is_none()) {
                    let known = tenant.ports.iter().map(|port| &**port.port);
                    unknown(&of("port"), name, known, report);
                }
            }
            Hosts::Ports(PortSelector::Labelled(labels))
                if !tenant.ports.iter().any(|port| has_labels(&port.labels, labels)) =>
            {
                let message = format!("no port of tenant {} has these labels", tenant.name.value);
                report.warning(labels.at, message);
            }
            Hosts::Peer(Peer::Remote(name)) if tenant.remote(name).is_none() => {
                let known = tenant.remotes.iter().filter_map(|remote| remote.name.as_ref());
                unknown(&of("remote"), name, known.map(|name| &***name), report);
            }
            _ => {}
        }
    }
}

fn unknown<'a>(what: &str, name: &Spanned<Name>, known: impl Iterator<Item = &'a str>, report: &mut Report) {
    let help = did_you_mean(name, known);
    report.error(name.at, format!("unknown {what} {}", name.value)).help_if(help);
}
