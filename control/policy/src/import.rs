//! Access lists of other systems to native documents: text of TenantPolicies, and a warning for each thing that a native
//! rule cannot say. `docs/import.md` is the user's view.
//!
//! What an import yields never lets through more than the source does. All formats come down to lists of rules of which
//! the first that matches decides ([`first_match`]); there a rule that cannot be said in full is left out when it
//! accepts, and denies more when it denies. Neither can open anything.

mod conditions;
mod dash;
mod dash_records;
mod first_match;
mod json;
mod names;
mod native;
mod nico;
mod ovn;
mod security_groups;
mod write;

use std::sync::Arc;

use crate::{Diagnostics, Name, Source, read::Report};

/// What a foreign file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// ACL groups, rules and bindings of SONiC DASH: tables of its APP_DB, or records of SAI.
    Dash,
    /// Security groups of OpenStack Networking (Neutron), which OVN carries out.
    SecurityGroups,
    /// ACLs of the Northbound database of OVN: tables as `ovn-nbctl --format=json list` prints them.
    Ovn,
    /// Network security groups of NVIDIA's Infra Controller (NICo).
    Nico,
}

impl Format {
    /// As the command line and the names of files have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dash => "dash",
            Self::SecurityGroups => "security-groups",
            Self::Ovn => "ovn",
            Self::Nico => "nico",
        }
    }
}

/// Native files, and what they do not say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    /// One for each tenant, sorted by its name.
    pub files: Vec<ImportedFile>,
    /// What has no equivalent, and what was done instead. Warnings only.
    pub warnings: Diagnostics,
}

/// The TenantPolicies of one tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportedFile {
    /// Name for the file, without a folder.
    pub name: String,
    /// YAML.
    pub text: String,
    /// How many documents it holds.
    pub policies: usize,
    /// How many rules they have together.
    pub rules: usize,
}

/// How the first line of each [`ImportedFile`] starts.
pub const IMPORTED_MARK: &str = "# Imported by floodway import";

/// Most rules that the lists of one port and direction may unfold to.
pub const UNFOLDED_RULES_MAX: usize = 1 << 16;

/// Reads foreign files, all of which are one configuration. Their order says nothing. `tenant` is whose everything is;
/// without it the files must say so.
///
/// # Errors
/// Every diagnostic, warnings among them, when at least one is an error.
pub fn import(format: Format, sources: &[Source], tenant: Option<&str>) -> Result<Imported, Diagnostics> {
    let mut files: Vec<&Source> = sources.iter().collect();
    files.sort_by(|a, b| (&a.name, &a.bytes).cmp(&(&b.name, &b.bytes)));
    let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
    let shared: Vec<Arc<str>> = names.iter().map(|name| name.as_str().into()).collect();
    let mut report = Report::new(&shared);
    let tenant = tenant.and_then(|name| whose(name, &mut report));
    let trees = json::trees(&files, &mut report);
    let policies = match format {
        Format::Dash => dash::policies(&trees, tenant, &mut report),
        Format::SecurityGroups => security_groups::policies(&trees, tenant, &mut report),
        Format::Ovn => ovn::policies(&trees, tenant, &mut report),
        Format::Nico => nico::policies(&trees, tenant, &mut report),
    };
    let written = write::files(format, policies, &names, &mut report);
    let diagnostics = report.diagnostics.sorted();
    if diagnostics.has_errors() {
        Err(diagnostics)
    } else {
        Ok(Imported { files: written, warnings: diagnostics })
    }
}

fn whose(name: &str, report: &mut Report) -> Option<Name> {
    let known = Name::known(name);
    if known.is_none() {
        report.nowhere(format!("{} cannot be the name of a tenant", crate::read::quote(name)));
    }
    known
}
