//! A [`Wire`] as a smoltcp device.

use std::collections::VecDeque;

use backends::memory::{MemoryBuf, Wire};
use packet::Buf;
use smoltcp::{
    phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken},
    time::Instant,
};

/// Frames that a host keeps; older ones are forgotten.
pub const RECORDED: usize = 4096;

const ETHERNET_HEADER: usize = 14;

pub(super) struct Link {
    pub(super) wire: Wire,
    pub(super) received: VecDeque<Vec<u8>>,
    capabilities: DeviceCapabilities,
}

impl Link {
    pub(super) fn new(wire: Wire, mtu: u16) -> Self {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = usize::from(mtu) + ETHERNET_HEADER;
        Self { wire, received: VecDeque::new(), capabilities }
    }
}

impl Device for Link {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sender<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sender<'_>)> {
        let buf = self.wire.receive()?;
        if self.received.len() == RECORDED {
            self.received.pop_front();
        }
        self.received.push_back(buf.bytes().to_vec());
        Some((Received(buf), Sender(&self.wire)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sender<'_>> {
        self.wire.can_send().then_some(Sender(&self.wire))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities.clone()
    }
}

pub(super) struct Received(MemoryBuf);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0.bytes())
    }
}

pub(super) struct Sender<'a>(&'a Wire);

impl TxToken for Sender<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        let mut frame = vec![0; len];
        let result = fill(&mut frame);
        // An answer may find the wire full; it is lost like on any link, and the wire counts it.
        let _ = self.0.send(&frame);
        result
    }
}
