//! Files to documents: the list of kinds, and the fields that all of them share.

use crate::{
    API_VERSION, Diagnostic, Diagnostics, Fabric, Name, Parsed, Place, Policy, Severity, Source, Spanned,
    Statement, Tenant, TenantPolicy, check, digest,
    kinds::check_statements,
    limit::{FILES_MAX, TOTAL_BYTES_MAX},
    read::{Fields, Report, quote, word},
    suggest::did_you_mean,
    yaml::{self, Node, Value},
};

/// Everything that could be read, in the order of files and lines.
#[derive(Default)]
pub(crate) struct Documents {
    pub fabrics: Vec<Fabric>,
    pub tenants: Vec<Tenant>,
    pub policies: Vec<TenantPolicy>,
    pub statements: Vec<Statement>,
    /// Which kinds may have more documents that could not be read.
    pub unread: Unread,
}

/// Kinds with a document that could not be read: a name that is not found may stand in one of them.
#[derive(Default)]
pub(crate) struct Unread {
    pub fabrics: bool,
    pub tenants: bool,
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
    Statement,
}

const KINDS: [(&str, Kind); 4] = [
    ("Fabric", Kind::Fabric),
    ("Tenant", Kind::Tenant),
    ("TenantPolicy", Kind::TenantPolicy),
    ("Statement", Kind::Statement),
];

pub(crate) fn parse(sources: &[Source], statements: &[Source]) -> Result<Parsed, Diagnostics> {
    let mut files: Vec<(&Source, Scope)> = sources.iter().map(|file| (file, Scope::All)).collect();
    files.extend(statements.iter().map(|file| (file, Scope::Statements)));
    refuse_too_much(&files)?;
    files.sort_by(|(a, _), (b, _)| (&a.name, &a.bytes).cmp(&(&b.name, &b.bytes)));
    let names: Vec<String> = files.iter().map(|(file, _)| file.name.clone()).collect();
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
            let Documents { mut tenants, mut policies, statements, .. } = documents;
            tenants.sort_by(|a, b| a.name.value.cmp(&b.name.value));
            policies.sort_by(|a, b| a.order().cmp(&b.order()));
            let digest = digest(sources);
            let policy = Policy { sources: names, digest, fabric, tenants, policies, statements };
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

impl Documents {
    fn read(&mut self, node: Option<&Node>, scope: Scope, report: &mut Report) {
        // Nothing between two `---`: no document.
        if node.is_some_and(|node| node.value == Value::Null) {
            return;
        }
        let Some((kind, name, spec)) = node.and_then(|node| read_head(node, report)) else {
            self.unread = Unread { fabrics: true, tenants: true };
            return;
        };
        if scope == Scope::Statements && !matches!(kind, Kind::Statement) {
            let at = node.map(|node| node.at).unwrap_or_default();
            report.error(at, "only a Statement may stand here").help("the policy is the other directory");
            return;
        }
        // No document refers to a TenantPolicy or a Statement.
        let mut ignored = false;
        match kind {
            Kind::Fabric => {
                keep(&mut self.fabrics, &mut self.unread.fabrics, name, spec, Fabric::read, report)
            }
            Kind::Tenant => {
                keep(&mut self.tenants, &mut self.unread.tenants, name, spec, Tenant::read, report)
            }
            Kind::TenantPolicy => {
                keep(&mut self.policies, &mut ignored, name, spec, TenantPolicy::read, report)
            }
            Kind::Statement => keep(&mut self.statements, &mut ignored, name, spec, Statement::read, report),
        }
    }
}

/// Reads a document into its list; one without a name is read for its errors only.
fn keep<T>(
    list: &mut Vec<T>,
    unread: &mut bool,
    name: Option<Spanned<Name>>,
    spec: Option<&Node>,
    read: fn(Spanned<Name>, &Node, &mut Report) -> Option<T>,
    report: &mut Report,
) {
    let is_named = name.is_some();
    let name = name.unwrap_or_else(Name::missing);
    let document = spec.and_then(|spec| read(name, spec, report)).filter(|_| is_named);
    *unread |= document.is_none();
    list.extend(document);
}

/// What all documents have: a kind, and a name and a spec unless they are missing.
type Head<'n> = (Kind, Option<Spanned<Name>>, Option<&'n Node>);

fn read_head<'n>(node: &'n Node, report: &mut Report) -> Option<Head<'n>> {
    let mut fields = Fields::of(node, "a document", report)?;
    if let Some(version) = fields.required_node("apiVersion") {
        check_version(version, fields.report);
    }
    let kind = fields.required_node("kind").and_then(|node| word(node, "a kind", &KINDS, fields.report));
    let metadata = fields.required_node("metadata");
    let spec = fields.required_node("spec");
    fields.finish();
    let name = metadata.and_then(|node| read_metadata(node, report));
    Some((kind?, name, spec))
}

fn check_version(node: &Node, report: &mut Report) {
    let Some(version) = crate::read::text(node, "an apiVersion", report) else { return };
    if version != API_VERSION {
        let message = format!("expected apiVersion {API_VERSION}, found {}", quote(version));
        report.error(node.at, message).help_if(did_you_mean(version, [API_VERSION]));
    }
}

fn read_metadata(node: &Node, report: &mut Report) -> Option<Spanned<Name>> {
    let mut fields = Fields::of(node, "metadata", report)?;
    let name = fields.required("name");
    fields.finish();
    name
}
