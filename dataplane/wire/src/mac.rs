//! Ethernet MAC addresses.

use core::{fmt, str::FromStr};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An Ethernet MAC address (IEEE 802-2014, section 8.2), in wire order.
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
)]
#[repr(transparent)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// True for group addresses, broadcast among them (the I/G bit).
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// True for `00:00:00:00:00:00`, which no frame may carry as its source.
    pub const fn is_zero(self) -> bool {
        matches!(self.0, [0, 0, 0, 0, 0, 0])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not six two-digit hexadecimal bytes joined by `:`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseMacError;

impl fmt::Display for ParseMacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is six hexadecimal bytes, such as 02:00:00:00:00:01")
    }
}

impl core::error::Error for ParseMacError {}

impl FromStr for Mac {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *byte = u8::from_str_radix(part.ok_or(ParseMacError)?, 16).map_err(|_| ParseMacError)?;
        }
        if parts.next().is_some() { Err(ParseMacError) } else { Ok(Self(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn text_round_trip() {
        let mac: Mac = "02:0a:ff:00:10:01".parse().unwrap();
        assert_eq!(mac.0, [2, 10, 255, 0, 16, 1]);
        assert_eq!(mac.to_string(), "02:0a:ff:00:10:01");
    }

    #[test]
    fn wrong_texts_are_refused() {
        for text in [
            "",
            "02:0a:ff:00:10",
            "02:0a:ff:00:10:01:02",
            "2:a:ff:0:10:1",
            "02-0a-ff-00-10-01",
            "02:0a:ff:00:10:+1",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(ParseMacError), "{text}");
        }
    }
}
