//! ACLs of SONiC DASH. Each ENI has, for each direction and family, up to five groups, one of each stage: see
//! [`first_match`](super::first_match) for how they decide. (sonic-net/DASH, `dash_acl.p4`; the schema of APP_DB is in
//! sonic-net/SONiC, `doc/dash/dash-sonic-hld.md`, 3.2.)

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use crate::{
    Direction, Name, Position,
    read::{Report, quote},
    yaml::Node,
};

use super::{
    UNFOLDED_RULES_MAX,
    conditions::{Conditions, Family, Parts, Range},
    dash_records,
    first_match::{Outcome, StageRule, TooMuch},
    names::Names,
    native::{NativePolicy, NativePorts, NativeRule, Translator},
};

/// Everything about ACLs that the files say.
#[derive(Default)]
pub(super) struct Acls {
    /// By id.
    pub groups: BTreeMap<String, Group>,
    /// In the order in which they were read.
    pub rules: Vec<Rule>,
    /// By name.
    pub tags: BTreeMap<String, Tag>,
    /// By ENI.
    pub enis: BTreeMap<String, Eni>,
}

pub(super) struct Group {
    pub at: Position,
    pub family: Family,
}

pub(super) struct Rule {
    pub at: Position,
    pub group: (Position, String),
    /// Its key within the group.
    pub id: String,
    pub priority: u32,
    pub outcome: Outcome,
    pub src: Addresses,
    pub dst: Addresses,
    pub protocols: Parts<u8>,
    pub src_ports: Parts<Range>,
    pub dst_ports: Parts<Range>,
    pub others: Vec<String>,
}

/// Prefixes and tags, which are united. Neither is everybody.
#[derive(Default)]
pub(super) struct Addresses {
    pub nets: Option<Vec<(Position, IpNet)>>,
    pub tags: Option<Vec<(Position, String)>>,
}

pub(super) struct Tag {
    pub at: Position,
    pub nets: Vec<IpNet>,
}

#[derive(Default)]
pub(super) struct Eni {
    pub at: Option<Position>,
    /// The VNet that it is in.
    pub vnet: Option<(Position, String)>,
    /// Group by direction, family if it is told, and stage.
    pub stages: BTreeMap<(Direction, Option<Family>, u32), (Position, String)>,
}

pub(super) fn policies(trees: &[Node], tenant: Option<Name>, report: &mut Report) -> Vec<NativePolicy> {
    let acls = dash_records::read(trees, report);
    let groups = acls.staged(report);
    acls.warn_of_unbound(report);
    acls.refuse_unknown(report);
    let (mut tenants, mut names) = (Names::default(), Names::default());
    let mut translator = Translator::new(false);
    let mut policies = Vec::new();
    for (id, eni) in &acls.enis {
        let at = eni.at.unwrap_or_default();
        if eni.stages.is_empty() {
            report.warning(at, format!("no ACL group is bound to ENI {}", quote(id))).help(
                "DASH lets everything through there; floodway's default denies it. Write a TenantPolicy that accepts \
                 what is meant",
            );
            continue;
        }
        let whose = match (&tenant, &eni.vnet) {
            (Some(tenant), _) => Some(tenant.clone()),
            (None, Some((at, vnet))) => tenants.give("", vnet, *at, report),
            (None, None) => {
                report
                    .error(at, format!("nothing says which VNet ENI {} is in", quote(id)))
                    .help("give `--tenant`");
                None
            }
        };
        let Some(whose) = whose else { continue };
        let Some(name) = names.give(&whose, id, at, report) else { continue };
        let [egress, ingress] = [Direction::Egress, Direction::Ingress]
            .map(|direction| acls.rules_of(id, eni, direction, &groups, &mut translator, report));
        policies.push(NativePolicy {
            tenant: whose,
            ports: NativePorts::Named(vec![name.clone()]),
            name,
            of: (at, format!("ENI {id}")),
            egress,
            ingress,
        });
    }
    policies
}

/// Rules in the order in which they are asked, by group and direction.
type Staged = BTreeMap<(String, Direction), Vec<StageRule>>;

impl Acls {
    /// Lower priority first. DASH leaves the order of equals open: of these, what lets less through comes first.
    fn staged(&self, report: &mut Report) -> Staged {
        let mut staged = Staged::new();
        let mut order: Vec<&Rule> = self.rules.iter().collect();
        order.sort_by(|a, b| {
            (&a.group.1, a.priority, a.outcome, &a.id).cmp(&(&b.group.1, b.priority, b.outcome, &b.id))
        });
        for pair in order.windows(2) {
            let [a, b] = pair else { continue };
            if (&a.group.1, a.priority) == (&b.group.1, b.priority) && a.outcome != b.outcome {
                report
                    .warning(b.at, format!("rule {}:{} has the priority of another one", b.group.1, b.id))
                    .help("the one that lets less through is asked first; give them different priorities")
                    .related(a.at, "the other");
            }
        }
        for rule in order {
            let Some(group) = self.groups.get(&rule.group.1) else {
                report.error(rule.group.0, format!("there is no ACL group {}", quote(&rule.group.1)));
                continue;
            };
            let (Some(src), Some(dst)) =
                (self.nets(&rule.src, group.family, report), self.nets(&rule.dst, group.family, report))
            else {
                continue;
            };
            for direction in [Direction::Egress, Direction::Ingress] {
                let (far, own) = match direction {
                    Direction::Egress => (dst.clone(), src.clone()),
                    Direction::Ingress => (src.clone(), dst.clone()),
                };
                let when = Conditions {
                    far,
                    own,
                    protocols: rule.protocols.clone(),
                    src_ports: rule.src_ports.clone(),
                    dst_ports: rule.dst_ports.clone(),
                    others: rule.others.clone(),
                    ..Conditions::default()
                };
                let name = format!("{}:{}", rule.group.1, rule.id);
                let when = when.simplified(group.family);
                let rules = staged.entry((rule.group.1.clone(), direction)).or_default();
                let of = Some((rule.at, name));
                rules.push(StageRule { of, outcome: rule.outcome, log: false, when });
            }
        }
        staged
    }

    /// `None` inside is everybody; without is an error.
    fn nets(&self, addresses: &Addresses, family: Family, report: &mut Report) -> Option<Parts<IpNet>> {
        let Addresses { nets, tags } = addresses;
        if nets.is_none() && tags.is_none() {
            return Some(None);
        }
        let mut all = Vec::new();
        for (at, net) in nets.iter().flatten() {
            if Family::of(*net) != family {
                report.error(*at, format!("prefix {net} is not {}, as its group is", family.name()));
                return None;
            }
            all.push(*net);
        }
        for (at, name) in tags.iter().flatten() {
            let Some(tag) = self.tags.get(name) else {
                report.error(*at, format!("there is no prefix tag {}", quote(name)));
                return None;
            };
            // A tag without prefixes is nobody: the rule does not become one of everybody.
            all.extend(tag.nets.iter().filter(|net| Family::of(**net) == family));
        }
        Some(Some(all))
    }

    fn rules_of(
        &self,
        id: &str,
        eni: &Eni,
        direction: Direction,
        groups: &Staged,
        translator: &mut Translator,
        report: &mut Report,
    ) -> Vec<NativeRule> {
        let mut rules = Vec::new();
        for family in Family::BOTH {
            let Some((at, stages)) = self.stages(eni, direction, family, groups, report) else {
                let (way, at) = (way(direction), eni.at.unwrap_or_default());
                report
                    .warning(at, format!("no {way} {} group is bound to ENI {}", family.name(), quote(id)))
                    .help("DASH lets all of that through; floodway's default denies it");
                continue;
            };
            match translator.list(&stages, family, report) {
                Ok(list) => rules.extend(list),
                Err(TooMuch) => {
                    let (way, family) = (way(direction), family.name());
                    let message =
                        format!("the {way} {family} groups of ENI {} unfold to too many rules", quote(id));
                    report.error(at, message).help(format!(
                        "at most {UNFOLDED_RULES_MAX}; make rules that do not terminate fewer"
                    ));
                }
            }
        }
        rules
    }

    /// The rules of the groups that are bound there, by stage, and the place of the first binding.
    fn stages(
        &self,
        eni: &Eni,
        direction: Direction,
        family: Family,
        groups: &Staged,
        report: &mut Report,
    ) -> Option<(Position, Vec<Vec<StageRule>>)> {
        let mut first = None;
        let mut stages = Vec::new();
        for ((its, told, _), (at, id)) in &eni.stages {
            let group = self.groups.get(id);
            let meant = told.or_else(|| group.map(|group| group.family));
            if *its != direction || meant.is_some_and(|meant| meant != family) {
                continue;
            }
            // That there is none has been said.
            let Some(group) = group else { continue };
            first = first.or(Some(*at));
            let key = (id.clone(), direction);
            if group.family == family {
                stages.push(groups.get(&key).cloned().unwrap_or_default());
            } else {
                report
                    .warning(
                        *at,
                        format!(
                            "group {} of {} is bound for {}",
                            quote(id),
                            group.family.name(),
                            family.name()
                        ),
                    )
                    .help("none of its rules can match there, so everything is denied");
                stages.push(vec![]);
            }
        }
        Some((first?, stages))
    }

    /// What is bound and not there.
    fn refuse_unknown(&self, report: &mut Report) {
        let bound = self.enis.values().flat_map(|eni| eni.stages.values());
        for (at, id) in bound.filter(|(_, id)| !self.groups.contains_key(id)) {
            report.error(*at, format!("there is no ACL group {}", quote(id)));
        }
    }

    /// What is there and decides nothing.
    fn warn_of_unbound(&self, report: &mut Report) {
        let bound: BTreeSet<&String> =
            self.enis.values().flat_map(|eni| eni.stages.values().map(|(_, group)| group)).collect();
        for (id, group) in self.groups.iter().filter(|(id, _)| !bound.contains(id)) {
            report.warning(
                group.at,
                format!("ACL group {} is bound to no ENI; its rules are left out", quote(id)),
            );
        }
        let filled: BTreeSet<&String> = self.rules.iter().map(|rule| &rule.group.1).collect();
        for (id, group) in self.groups.iter().filter(|(id, _)| bound.contains(id) && !filled.contains(id)) {
            let message =
                format!("ACL group {} has no rule: where it is bound, everything is denied", quote(id));
            report.warning(group.at, message);
        }
        let used: BTreeSet<&String> = self
            .rules
            .iter()
            .flat_map(|rule| [&rule.src, &rule.dst])
            .flat_map(|all| all.tags.iter().flatten())
            .map(|(_, tag)| tag)
            .collect();
        for (name, tag) in self.tags.iter().filter(|(name, _)| !used.contains(name)) {
            report.warning(tag.at, format!("prefix tag {} is used by no rule, and left out", quote(name)));
        }
    }
}

const fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Egress => "outbound",
        Direction::Ingress => "inbound",
    }
}
