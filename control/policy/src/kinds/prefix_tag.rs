//! Kind `PrefixTag`: a name for a set of prefixes, which rules of all tenants may use.

use ipnet::IpNet;

use crate::{
    Name, Spanned,
    read::{Fields, Report},
    yaml::Node,
};

/// A named set of prefixes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrefixTag {
    /// Its name.
    pub name: Spanned<Name>,
    /// What it stands for.
    pub prefixes: Vec<Spanned<IpNet>>,
}

impl PrefixTag {
    pub(crate) fn read(name: Spanned<Name>, spec: &Node, report: &mut Report) -> Option<Self> {
        let mut fields = Fields::of(spec, "the spec of a PrefixTag", report)?;
        let prefixes = fields.required("prefixes");
        fields.finish();
        Some(Self { name, prefixes: prefixes? })
    }
}
