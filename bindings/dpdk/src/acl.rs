//! DPDK's classifier over the 5-tuple of IPv4, as `l3fwd --lookup=acl` uses it: a peer to measure against.

use core::ptr::NonNull;
use std::{ffi::CString, sync::Arc};

use dpdk_sys as sys;

use crate::{
    Errno,
    eal::{Eal, Shared},
};

/// What a key looks like to `rte_acl`: 16 bytes, numbers in network byte order.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct AclKey {
    /// IP protocol.
    pub protocol: u8,
    /// Not looked at.
    pub zero: [u8; 3],
    /// Source address.
    pub src: [u8; 4],
    /// Destination address.
    pub dst: [u8; 4],
    /// Source port.
    pub src_port: [u8; 2],
    /// Destination port.
    pub dst_port: [u8; 2],
}

/// One rule; earlier ones go before later ones.
#[derive(Clone, Copy, Debug)]
pub struct AclRule {
    /// IP protocol, and which of its bits count.
    pub protocol: (u8, u8),
    /// Source prefix and its length.
    pub src: (u32, u8),
    /// Destination prefix and its length.
    pub dst: (u32, u8),
    /// Source ports, both included.
    pub src_ports: (u16, u16),
    /// Destination ports, both included.
    pub dst_ports: (u16, u16),
}

const FIELDS: usize = 5;

/// `RTE_ACL_RULE_DEF` with five fields.
#[repr(C)]
struct Rule {
    data: sys::rte_acl_rule_data,
    field: [sys::rte_acl_field; FIELDS],
}

/// Rules that have been built.
pub struct Acl {
    context: NonNull<sys::rte_acl_ctx>,
    _eal: Arc<Shared>,
}

impl Acl {
    /// Builds the tries of these rules. The name is unique in the process while they live.
    pub fn build(eal: &Eal, name: &str, rules: &[AclRule]) -> Result<Self, Errno> {
        let name = CString::new(name).map_err(|_| Errno::new(libc::EINVAL))?;
        let count = u32::try_from(rules.len()).map_err(|_| Errno::new(libc::E2BIG))?;
        let parameters = sys::rte_acl_param {
            name: name.as_ptr(),
            socket_id: -1,
            rule_size: size_of::<Rule>() as u32,
            max_rule_num: count,
        };
        // SAFETY: EAL has started; the parameters and the name that they point to live through the call.
        let context = unsafe { sys::rte_acl_create(&parameters) };
        let acl = Self { context: NonNull::new(context).ok_or_else(Errno::last)?, _eal: eal.shared() };
        let rules: Vec<Rule> = (0..).zip(rules).map(|(number, rule)| rule.compiled(number)).collect();
        // SAFETY: the context is alive, and `rules` has `count` rules of the size that it was made for.
        Errno::check(unsafe { sys::rte_acl_add_rules(acl.context.as_ptr(), rules.as_ptr().cast(), count) })?;
        let mut config = sys::rte_acl_config {
            num_categories: 1,
            num_fields: FIELDS as u32,
            ..sys::rte_acl_config::default()
        };
        config.defs[..FIELDS].copy_from_slice(&definitions());
        // SAFETY: the context is alive and nobody else uses it yet.
        Errno::check(unsafe { sys::rte_acl_build(acl.context.as_ptr(), &config) })?;
        Ok(acl)
    }

    /// For each key the number of the first rule that matches, plus one; zero for none.
    ///
    /// # Panics
    /// With more than 32 keys, or another number of results.
    pub fn classify(&self, keys: &[AclKey], found: &mut [u32]) {
        assert!(keys.len() <= 32 && keys.len() == found.len(), "a burst of keys and as many results");
        let mut data = [core::ptr::null(); 32];
        for (data, key) in data.iter_mut().zip(keys) {
            *data = core::ptr::from_ref(key).cast::<u8>();
        }
        // SAFETY: `data` points to that many keys of 16 bytes, as the definitions say; there is a result for each.
        unsafe {
            sys::rte_acl_classify(
                self.context.as_ptr(),
                data.as_mut_ptr(),
                found.as_mut_ptr(),
                keys.len() as u32,
                1,
            );
        }
    }
}

impl Drop for Acl {
    fn drop(&mut self) {
        // SAFETY: it was made by `rte_acl_create`, and nobody else has it.
        unsafe { sys::rte_acl_free(self.context.as_ptr()) }
    }
}

impl AclRule {
    fn compiled(&self, number: u32) -> Rule {
        let field = |value: u32, mask_range: u32| sys::rte_acl_field {
            value: sys::rte_acl_field_types { u64_: value.into() },
            mask_range: sys::rte_acl_field_types { u64_: mask_range.into() },
        };
        Rule {
            data: sys::rte_acl_rule_data {
                category_mask: 1,
                priority: sys::RTE_ACL_MAX_PRIORITY as i32 - number as i32,
                userdata: number + 1,
            },
            field: [
                field(self.protocol.0.into(), self.protocol.1.into()),
                field(self.src.0, self.src.1.into()),
                field(self.dst.0, self.dst.1.into()),
                field(self.src_ports.0.into(), self.src_ports.1.into()),
                field(self.dst_ports.0.into(), self.dst_ports.1.into()),
            ],
        }
    }
}

/// Where each field is in an [`AclKey`]. The fields of one input index are four bytes together.
fn definitions() -> [sys::rte_acl_field_def; FIELDS] {
    let define = |kind: u32, size: u8, field_index: u8, input_index: u8, offset: usize| {
        sys::rte_acl_field_def { type_: kind as u8, size, field_index, input_index, offset: offset as u32 }
    };
    [
        define(sys::RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, 0, core::mem::offset_of!(AclKey, protocol)),
        define(sys::RTE_ACL_FIELD_TYPE_MASK, 4, 1, 1, core::mem::offset_of!(AclKey, src)),
        define(sys::RTE_ACL_FIELD_TYPE_MASK, 4, 2, 2, core::mem::offset_of!(AclKey, dst)),
        define(sys::RTE_ACL_FIELD_TYPE_RANGE, 2, 3, 3, core::mem::offset_of!(AclKey, src_port)),
        define(sys::RTE_ACL_FIELD_TYPE_RANGE, 2, 4, 3, core::mem::offset_of!(AclKey, dst_port)),
    ]
}
