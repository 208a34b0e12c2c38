//! Files to documents: the list of kinds, and the fields that all of them share.

use std::sync::Arc;

use crate::{
    API_VERSION, ClusterNetworkPolicy, ClusterTier, Diagnostic, Diagnostics, Fabric, Labels, Name,
    NetworkPolicy, Parsed, Place, Policy, PrefixTag, Severity, Source, Spanned, Statement, Tenant,
    TenantPolicy, check, digest,
    kinds::{Metadata, check_statements},
    limit::{FILES_MAX, TOTAL_BYTES_MAX},
    read::{Fields, Report, quote, text, unexpected, word},
    suggest::did_you_mean,
    yaml::{self, Node, Value},
};

/// Everything that could be read, in the order of files and lines.
#[derive(Default)]
pub(crate) struct Documents {
    pub fabrics: Vec<Fabric>,
    pub tenants: Vec<Tenant>,
    pub policies: Vec<TenantPolicy>,
    pub network_policies: Vec<NetworkPolicy>,
    pub cluster_policies: Vec<ClusterNetworkPolicy>,
    pub tags: Vec<PrefixTag>,
    pub statements: Vec<Statement>,
    /// Which kinds may have more documents that could not be read.
    pub unread: Unread,
}

/// Kinds with a document that could not be read: a name that is not found may stand in one of them.
#[derive(Default)]
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
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
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

pub(crate) fn parse(sources: &[Source], statements: &[Source]) -> Result<Parsed, Diagnostics> {
    let mut files: Vec<(&Source, Scope)> = sources.iter().map(|file| (file, Scope::All)).collect();
    files.extend(statements.iter().map(|file| (file, Scope::Statements)));
    refuse_too_much(&files)?;
    files.sort_by(|(a, _), (b, _)| (&a.name, &a.bytes).cmp(&(&b.name, &b.bytes)));
    let names: Vec<Arc<str>> = files.iter().map(|(file, _)| file.name.as_str().into()).collect();
    let mut report = Report::new(&names);
    let mut documents = Documents::default();
    for (index, (file, scope)) in files.iter().enumerate() {
        // There are fewer files than FILES_MAX.
        for node in yaml::documents(index as u32, &file.bytes, &mut report) {
            documents.read(node.as_ref(), *scope, &mut report);
        }
    }
    check::all(&documents, &mut report);
    check_statements(&documents, &mut report);
    let diagnostics = report.diagnostics.sorted();
    match documents.fabrics.pop() {
        Some(fabric) if !diagnostics.has_errors() => {
            let policy = documents.into_policy(names, digest(sources), fabric);
            Ok(Parsed { policy, warnings: diagnostics })
        }
        _ => Err(diagnostics),
    }
}

impl TenantPolicy {
    fn order(&self) -> (&Name, u16, &Name) {
        (&self.tenant.value, self.priority, &self.name.value)
    }
}

fn refuse_too_much(files: &[(&Source, Scope)]) -> Result<(), Diagnostics> {
    let bytes: usize = files.iter().map(|(file, _)| file.bytes.len()).sum();
    let message = if files.len() > FILES_MAX {
        format!("there are {} files; at most {FILES_MAX} are read", files.len())
    } else if bytes > TOTAL_BYTES_MAX {
        format!("the files have {bytes} bytes together; at most {TOTAL_BYTES_MAX} are read")
    } else {
        return Ok(());
    };
    let diagnostic = Diagnostic::new(Severity::Error, Place::NOWHERE, message);
    Err(Diagnostics { list: vec![diagnostic], omitted: 0 })
}

impl ClusterNetworkPolicy {
    fn order(&self) -> (ClusterTier, u16, &Name) {
        (self.tier, self.priority, &self.name.value)
    }
}

impl Documents {
    fn into_policy(mut self, sources: Vec<Arc<str>>, digest: u64, fabric: Fabric) -> Policy {
        self.tenants.sort_by(|a, b| a.name.value.cmp(&b.name.value));
        self.policies.sort_by(|a, b| a.order().cmp(&b.order()));
        self.network_policies
            .sort_by(|a, b| (&a.tenant.value, &a.name.value).cmp(&(&b.tenant.value, &b.name.value)));
        self.cluster_policies.sort_by(|a, b| a.order().cmp(&b.order()));
        self.tags.sort_by(|a, b| a.name.value.cmp(&b.name.value));
        let Self { tenants, policies, network_policies, cluster_policies, tags, statements, .. } = self;
        Policy {
            sources,
            digest,
            fabric,
            tenants,
            policies,
            network_policies,
            cluster_policies,
            tags,
            statements,
        }
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
                self.network_policies.extend(document.clone());
                document.is_some()
            }
            (_, Some(spec)) => {
                let document = ClusterNetworkPolicy::read(metadata, spec, report).filter(|_| is_named);
                self.cluster_policies.extend(document.clone());
                document.is_some()
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
    list: &mut Vec<T>,
    unread: &mut bool,
    head: Head,
    read: impl FnOnce(Spanned<Name>, &Node, &mut Report) -> Option<T>,
    report: &mut Report,
) {
    let is_named = head.name.is_some();
    let name = head.name.unwrap_or_else(Name::missing);
    let document = head.spec.and_then(|spec| read(name, spec, report)).filter(|_| is_named);
    *unread |= document.is_none();
    list.extend(document);
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
