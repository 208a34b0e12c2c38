//! Statements to questions: names become ids and addresses.

use std::collections::BTreeMap;

use policy::{Hosts, Policy, Statement};
use program::{PortId, Program, TenantId};

use super::{End, Question};
use crate::{hosts::Tags, rules};

/// The policy's statements and what each asks of the program that the policy was compiled to.
pub fn questions<'a>(policy: &'a Policy, program: &Program) -> Vec<(&'a Statement, Question)> {
    let names = Names {
        tenants: program.tenants.iter().flatten().map(|tenant| (tenant.name.clone(), tenant.id)).collect(),
        policy,
    };
    policy.statements.iter().map(|statement| (&**statement, names.question(statement))).collect()
}

struct Names<'a> {
    policy: &'a Policy,
    tenants: BTreeMap<String, TenantId>,
}

impl Names<'_> {
    fn question(&self, statement: &Statement) -> Question {
        let services = statement.services.as_ref();
        Question {
            expect: statement.expect,
            from: self.end(&statement.from),
            to: self.end(&statement.to),
            // A checked statement names ports by number.
            services: services.map(|all| all.iter().filter_map(rules::service_match).collect()),
        }
    }

    /// A checked policy names only what exists.
    fn end(&self, end: &policy::End) -> End {
        let id = self.tenants.get(&**end.tenant).copied().unwrap_or_default();
        let Some(tenant) = self.policy.tenant(&end.tenant) else { return End::all(id) };
        match &end.hosts {
            Hosts::All => End::all(id),
            Hosts::Ports(selector) => {
                let selected = tenant.ports.iter().filter(|port| selector.selects(&port.port, &port.labels));
                let ids = selected.filter_map(|port| self.policy.fabric.port(&port.port));
                let ids = ids.map(|(index, _)| PortId(index as u16)).collect();
                End { tenant: id, ports: Some(ids), blocks: None }
            }
            Hosts::Peer(peer) => {
                let blocks = crate::hosts::Hosts::of(tenant, &Tags::new()).blocks(peer);
                End { tenant: id, ports: None, blocks: Some(blocks) }
            }
        }
    }
}
