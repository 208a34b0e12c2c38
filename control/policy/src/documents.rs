//! Files to documents: the list of kinds, and the fields that all of them share.

use std::sync::Arc;

use crate::{
    API_VERSION, ClusterNetworkPolicy, ClusterTier, Fabric, Labels, Name, NetworkPolicy, Policy, PrefixTag,
    Spanned, Statement, Tenant, TenantPolicy,
    kinds::Metadata,
    read::{Fields, Report, quote, text, unexpected, word},
    suggest::did_you_mean,
    yaml::{self, Node, Value},
};

/// Everything that could be read, in the order of files and lines.
#[derive(Clone, Default, Debug)]
pub(crate) struct Documents {
    pub fabrics: Vec<Arc<Fabric>>,
    pub tenants: Vec<Arc<Tenant>>,
    pub policies: Vec<Arc<TenantPolicy>>,
    pub network_policies: Vec<Arc<NetworkPolicy>>,
    pub cluster_policies: Vec<Arc<ClusterNetworkPolicy>>,
    pub tags: Vec<Arc<PrefixTag>>,
    pub statements: Vec<Arc<Statement>>,
    /// Which kinds may have more documents that could not be read.
    pub unread: Unread,
}

/// Kinds with a document that could not be read: a name that is not found may stand in one of them.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Unread {
    pub fabrics: bool,
    pub tenants: bool,
    pub tags: bool,
    /// Some policy: what is not used may be used there.
    pub policies: bool,
}

impl Unread {
    const ALL: Self = Self { fabrics: true, tenants: true, tags: true, policies: true };
}

/// What may stand in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    All,
    Statements,
}

#[derive(Clone, Copy)]
enum Kind {
    Fabric,
    Tenant,
    TenantPolicy,
    PrefixTag,
    Statement,
}

const KINDS: [(&str, Kind); 5] = [
    ("Fabric", Kind::Fabric),
    ("Tenant", Kind::Tenant),
    ("TenantPolicy", Kind::TenantPolicy),
    ("PrefixTag", Kind::PrefixTag),
    ("Statement", Kind::Statement),
];

/// Kinds of Kubernetes that are read unchanged: version, kind, and what it is.
const KUBERNETES: [(&str, &str, Foreign); 5] = [
    ("networking.k8s.io/v1", "NetworkPolicy", Foreign::NetworkPolicy),
    ("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy", Foreign::ClusterNetworkPolicy),
    ("v1", "List", Foreign::List),
    ("networking.k8s.io/v1", "NetworkPolicyList", Foreign::List),
    ("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicyList", Foreign::List),
];

#[derive(Clone, Copy)]
enum Foreign {
    NetworkPolicy,
    ClusterNetworkPolicy,
    List,
}

impl TenantPolicy {
    fn order(&self) -> (&Name, u16, &Name) {
        (&self.tenant.value, self.priority, &self.name.value)
    }
}

impl ClusterNetworkPolicy {
    fn order(&self) -> (ClusterTier, u16, &Name) {
        (self.tier, self.priority, &self.name.value)
    }
}

impl Documents {
    /// Reads one file.
    pub fn read_file(&mut self, number: u32, bytes: &[u8], scope: Scope, report: &mut Report) {
        for node in yaml::documents(number, bytes, report) {
            self.read(node.as_ref(), scope, report);
        }
    }

    /// Adds those of the next file.
    pub fn extend(&mut self, file: &Self) {
        let Self { fabrics, tenants, policies, network_policies, cluster_policies, tags, statements, unread } =
            file;
        self.fabrics.extend_from_slice(fabrics);
        self.tenants.extend_from_slice(tenants);
        self.policies.extend_from_slice(policies);
        self.network_policies.extend_from_slice(network_policies);
        self.cluster_policies.extend_from_slice(cluster_policies);
        self.tags.extend_from_slice(tags);
        self.statements.extend_from_slice(statements);
        self.unread.fabrics |= unread.fabrics;
        self.unread.tenants |= unread.tenants;
        self.unread.tags |= unread.tags;
        self.unread.policies |= unread.policies;
    }

    /// The policy with its last Fabric; `None` without one.
    pub fn into_policy(
        mut self,
        files: Vec<Arc<str>>,
        sources: Vec<Arc<str>>,
        digest: u64,
    ) -> Option<Policy> {
        let fabric = self.fabrics.pop()?;
        self.tenants.sort_by(|a, b| a.name.value.cmp(&b.name.value));
        self.policies.sort_by(|a, b| a.order().cmp(&b.order()));
        self.network_policies
            .sort_by(|a, b| (&a.tenant.value, &a.name.value).cmp(&(&b.tenant.value, &b.name.value)));
        self.cluster_policies.sort_by(|a, b| a.order().cmp(&b.order()));
        self.tags.sort_by(|a, b| a.name.value.cmp(&b.name.value));
        let Self { tenants, policies, network_policies, cluster_policies, tags, statements, .. } = self;
        Some(Policy {
            files,
            sources,
            digest,
            fabric,
            tenants,
            policies,
            network_policies,
            cluster_policies,
            tags,
            statements,
        })
    }

    fn read(&mut self, node: Option<&Node>, scope: Scope, report: &mut Report) {
        // Nothing between two `---`: no document.
        if node.is_some_and(Node::is_null) {
            return;
        }
        if let Some((node, kind)) = node.and_then(|node| Some((node, foreign(node)?))) {
            match scope {
                Scope::Statements => refuse_but_statements(node, report),
                _ => self.read_foreign(kind, node, scope, report),
            }
            return;
        }
        let Some(head) = node.and_then(|node| read_head(node, report)) else {
            self.unread = Unread::ALL;
            return;
        };
        if scope == Scope::Statements && !matches!(head.kind, Kind::Statement) {
            node.into_iter().for_each(|node| refuse_but_statements(node, report));
            return;
        }
        let unread = &mut self.unread;
        match head.kind {
            Kind::Fabric => keep(&mut self.fabrics, &mut unread.fabrics, head, Fabric::read, report),
            Kind::Tenant => {
                let labels = head.labels.clone();
                let read = |name, spec: &Node, report: &mut Report| Tenant::read(name, labels, spec, report);
                keep(&mut self.tenants, &mut unread.tenants, head, read, report);
            }
            Kind::TenantPolicy => {
                keep(&mut self.policies, &mut unread.policies, head, TenantPolicy::read, report);
            }
            Kind::PrefixTag => keep(&mut self.tags, &mut unread.tags, head, PrefixTag::read, report),
            // What a statement names is used by it alone.
            Kind::Statement => keep(&mut self.statements, &mut false, head, Statement::read, report),
        }
    }

    fn read_foreign(&mut self, kind: Foreign, node: &Node, scope: Scope, report: &mut Report) {
        let Some(mut fields) = Fields::of(node, "a document", report) else { return };
        fields.ignore(&["apiVersion", "kind", "status"]);
        if let Foreign::List = kind {
            fields.ignore(&["metadata"]);
            let items = fields.required_node("items");
            fields.finish();
            match items.map(|node| &node.value) {
                Some(Value::List(items)) => {
                    items.iter().for_each(|item| self.read(Some(item), scope, report))
                }
                Some(_) => drop(items.and_then(|node| unexpected::<()>(node, "a list of documents", report))),
                None => {}
            }
            return;
        }
        let metadata: Option<Metadata> = fields.required("metadata");
        let spec = fields.required_node("spec");
        fields.finish();
        // Whatever is wrong with the metadata, the spec is read for its own errors.
        let is_named = metadata.is_some();
        let metadata = metadata.unwrap_or_else(Metadata::missing);
        let is_read = match (kind, spec) {
            (Foreign::NetworkPolicy, Some(spec)) => {
                let document = NetworkPolicy::read(metadata, spec, report).filter(|_| is_named);
                let is_read = document.is_some();
                self.network_policies.extend(document.map(Arc::new));
                is_read
            }
            (_, Some(spec)) => {
                let document = ClusterNetworkPolicy::read(metadata, spec, report).filter(|_| is_named);
                let is_read = document.is_some();
                self.cluster_policies.extend(document.map(Arc::new));
                is_read
            }
            (_, None) => false,
        };
        self.unread.policies |= !is_read;
    }
}

fn refuse_but_statements(node: &Node, report: &mut Report) {
    report.error(node.at, "only a Statement may stand here").help("the policy is the other directory");
}

/// What a document of Kubernetes is, if it is one that is read.
fn foreign(node: &Node) -> Option<Foreign> {
    let (version, kind) = (node.peek("apiVersion")?, node.peek("kind")?);
    let known = KUBERNETES.iter().find(|known| (known.0, known.1) == (version, kind))?;
    Some(known.2)
}

/// Reads a document into its list; one without a name is read for its errors only.
fn keep<T>(
    list: &mut Vec<Arc<T>>,
    unread: &mut bool,
    head: Head,
    read: impl FnOnce(Spanned<Name>, &Node, &mut Report) -> Option<T>,
    report: &mut Report,
) {
    let is_named = head.name.is_some();
    let name = head.name.unwrap_or_else(Name::missing);
    let document = head.spec.and_then(|spec| read(name, spec, report)).filter(|_| is_named);
    *unread |= document.is_none();
    list.extend(document.map(Arc::new));
}

/// What all documents have: a kind, and a name and a spec unless they are missing.
struct Head<'n> {
    kind: Kind,
    name: Option<Spanned<Name>>,
    labels: Labels,
    spec: Option<&'n Node>,
}

fn read_head<'n>(node: &'n Node, report: &mut Report) -> Option<Head<'n>> {
    let mut fields = Fields::of(node, "a document", report)?;
    if let Some(version) = fields.required_node("apiVersion") {
        check_version(version, fields.report);
    }
    let kind = fields.required_node("kind").and_then(|node| read_kind(node, fields.report));
    let metadata = fields.required_node("metadata");
    let spec = fields.required_node("spec");
    fields.finish();
    let metadata = metadata.and_then(|node| read_metadata(node, kind, report));
    let (name, labels) = metadata.unwrap_or_default();
    Some(Head { kind: kind?, name, labels, spec })
}

fn read_kind(node: &Node, report: &mut Report) -> Option<Kind> {
    let found = text(node, "a kind", report)?;
    if let Some((version, ..)) = KUBERNETES.iter().find(|known| known.1 == found) {
        report
            .error(node.at, format!("{found} is a kind of apiVersion {version}"))
            .help(format!("write `apiVersion: {version}`"));
        return None;
    }
    word(node, "a kind", &KINDS, report)
}

/// The earlier form of ClusterNetworkPolicy, whose fields are named otherwise.
const SUPERSEDED: &str = "policy.networking.k8s.io/v1alpha1";

fn check_version(node: &Node, report: &mut Report) {
    let Some(version) = text(node, "an apiVersion", report) else { return };
    if version == API_VERSION {
        return;
    }
    let known = KUBERNETES.iter().map(|known| known.0).find(|known| *known == version);
    let message = format!("expected apiVersion {API_VERSION}, found {}", quote(version));
    let help = match known {
        _ if version == SUPERSEDED => Some(
            "rewrite it as a ClusterNetworkPolicy of policy.networking.k8s.io/v1alpha2, its successor".into(),
        ),
        Some(_) => {
            let kinds = KUBERNETES.iter().filter(|known| known.0 == version).map(|known| known.1);
            Some(format!("of {version} these kinds are read: {}", kinds.collect::<Vec<_>>().join(", ")))
        }
        None => did_you_mean(version, [API_VERSION, KUBERNETES[0].0, KUBERNETES[1].0]),
    };
    report.error(node.at, message).help_if(help);
}

/// Only a tenant has labels.
fn read_metadata(
    node: &Node,
    kind: Option<Kind>,
    report: &mut Report,
) -> Option<(Option<Spanned<Name>>, Labels)> {
    let mut fields = Fields::of(node, "metadata", report)?;
    let name = fields.required("name");
    let labels = match kind {
        Some(Kind::Tenant) | None => fields.optional("labels"),
        Some(_) => None,
    };
    fields.finish();
    Some((name, labels.unwrap_or_default()))
}
