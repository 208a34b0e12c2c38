//! What the kinds of Kubernetes share: metadata, and prefixes as its API server takes them.
//!
//! In these documents `null` is an absent field, as it is for the API server.

use ipnet::IpNet;

use crate::{
    Name, Spanned,
    read::{Fields, Read, Report, text, unexpected},
    yaml::Node,
};

/// The namespace of a document that names none.
const NAMESPACE_DEFAULT: &str = "default";

/// Fields of metadata that say nothing about traffic (apimachinery, `metav1.ObjectMeta`).
const METADATA_IGNORED: [&str; 12] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
];

/// Name and namespace of a document.
pub(crate) struct Metadata {
    pub name: Spanned<Name>,
    /// At the document's name when it is not given.
    pub namespace: Spanned<Name>,
}

impl Metadata {
    /// Stands for metadata that could not be read.
    pub fn missing() -> Self {
        Self { name: Name::missing(), namespace: Name::missing() }
    }
}

impl Read for Metadata {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(node, "metadata", report)?;
        let name: Option<Spanned<SubdomainName>> = fields.required("name");
        let namespace: Option<Spanned<Name>> =
            fields.given("namespace").and_then(|node| Read::read(node, fields.report));
        fields.ignore(&METADATA_IGNORED);
        fields.ignore(&["uid"]);
        let is_whole = fields.finish();
        let name = name.filter(|_| is_whole)?;
        let name = Spanned { value: name.value.0, at: name.at };
        let namespace =
            namespace.or(Some(Spanned { value: Name::known(NAMESPACE_DEFAULT)?, at: name.at }))?;
        Some(Self { name, namespace })
    }
}

/// Names of these kinds may be longer than those of ours.
struct SubdomainName(Name);

impl Read for SubdomainName {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        Name::read_subdomain(node, report).map(Self)
    }
}

/// A prefix; bits beyond its length are dropped with a warning, as the API server takes them.
pub(crate) struct Cidr(pub IpNet);

impl Read for Cidr {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        const EXPECTED: &str = "a prefix such as 10.0.0.0/24 or fd00::/64";
        let Ok(net) = text(node, EXPECTED, report)?.parse::<IpNet>() else {
            return unexpected(node, EXPECTED, report);
        };
        if net != net.trunc() {
            let message = format!("prefix {net} has host bits set; it is read as {}", net.trunc());
            report.warning(node.at, message);
        }
        Some(Self(net.trunc()))
    }
}

pub(crate) fn prefixes(node: &Node, report: &mut Report) -> Vec<Spanned<IpNet>> {
    let read: Vec<Spanned<Cidr>> = Read::read(node, report).unwrap_or_default();
    read.into_iter().map(|cidr| Spanned { value: cidr.value.0, at: cidr.at }).collect()
}
