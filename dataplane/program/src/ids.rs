//! Dense ids: each is an index into one table of the program.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[repr(transparent)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// Which program: stamped into flow entries, compared on every hit.
    Generation(u32)
}
id! {
    /// A device that the daemon opened; stable for the daemon's life.
    PortId(u16)
}
id! {
    /// A tenant; stable for the daemon's life, never given to another name.
    TenantId(u16)
}
id! {
    /// A remote tunnel endpoint; stable for the daemon's life, never given to another address.
    VtepId(u16)
}
id! {
    /// A rule of one program.
    RuleId(u32)
}
id! {
    /// An ordered list of rules of one program.
    RuleListId(u32)
}
id! {
    /// A VXLAN network identifier: 24 bits, 1 to 0xffffff.
    Vni(u32)
}
