//! One worker's pipeline over ports in memory, with packets that stand ready: what it does with them, and nothing else, is
//! measured.

use std::ops::Range;
use std::sync::Arc;

use backends::memory::{self, MemoryBackend, MemoryBuf, Pool, Wire};
use edge::{Edge, Facts, Limits, Tables};
use engine::{Hold, Io, Ledger, Outbox, Pipeline};
use packet::{Burst, Nanos, PortIo};
use program::{PortId, limit};
use quiescent::SharedWords;
use wire::Mac;

use crate::traffic::{Traffic, Transport};

/// The port to the fabric, as the policy has it.
pub const UPLINK: PortId = PortId(0);
/// The port of the tenant's host.
pub const HOST: PortId = PortId(1);
/// The MAC of the uplink in memory.
pub const UPLINK_MAC: [u8; 6] = [0x02, 0xff, 0, 0, 0, 1];

/// A pipeline and the packets that it will be given.
pub struct Stage {
    edge: Edge,
    tables: Tables,
    io: Io<MemoryBackend>,
    pool: Pool,
    ready: Vec<(PortId, Burst<MemoryBuf>)>,
    outside: [Wire; 2],
}

impl Stage {
    /// With room for `packets` packets of at most 256 bytes, and no flow in its table.
    ///
    /// # Panics
    /// When the program does not fit two ports: that is a mistake in the measurement.
    pub fn new(program: Arc<program::Program>, limits: Limits, packets: usize) -> Self {
        let facts = [Facts { mac: Mac(UPLINK_MAC) }, Facts { mac: Mac([0x02, 0xff, 0, 0, 0, 2]) }];
        let tables = Tables::build(program, &facts).unwrap_or_else(|error| panic!("{error}"));
        let pool = Pool::with_room(packets + packet::BURST, 256);
        let (ports, outside): (Vec<PortIo<MemoryBackend>>, Vec<Wire>) =
            (0..2).map(|_| memory::port(&pool, packets)).unzip();
        let outbox = Outbox::new(ports.into_iter().map(|port| Some(port.tx)).collect());
        let ledger = Ledger::new().0;
        let mut io = Io { outbox, hold: Hold::new(0), ledger, allocator: pool.clone() };
        let mut edge = Edge::new(limits, 7, Arc::new(SharedWords::new(limit::VTEPS)));
        Pipeline::<MemoryBackend>::adopt(&mut edge, &tables, &mut io, Nanos(0));
        let outside = outside.try_into().unwrap_or_else(|_| unreachable!("two ports were made"));
        Self { edge, tables, io, pool, ready: Vec::new(), outside }
    }

    /// Makes frames ready, to come from `port` in full bursts.
    ///
    /// # Panics
    /// When there are more than there is room for.
    pub fn with(mut self, port: PortId, frames: impl Iterator<Item = Vec<u8>>) -> Self {
        for frame in frames {
            let mut buf = self.pool.take().expect("the pool was made for them");
            assert!(buf.fill(&frame), "a frame fits its buffer");
            match self.ready.last_mut() {
                Some((last, burst)) if *last == port && !burst.is_full() => burst.push(buf),
                _ => self.ready.push((port, Burst::from_iter([buf]))),
            }
        }
        self
    }

    /// Gives all that is ready to the pipeline and sends what comes of it.
    pub fn run(&mut self) {
        for (port, burst) in &mut self.ready {
            self.edge.process(&self.tables, *port, burst, &mut self.io, Nanos(0));
        }
        self.io.outbox.flush(&mut self.io.ledger);
    }

    /// As [`Stage::run`], for packets of which nothing is to be measured; all of them must be sent.
    ///
    /// # Panics
    /// When one was dropped.
    pub fn played(mut self) -> Self {
        let ready: usize = self.ready.iter().map(|(_, burst)| burst.len()).sum();
        self.run();
        assert_eq!(self.sent(), ready, "what was ready is sent");
        self.ready.clear();
        self
    }

    /// Takes away what was sent, and says how much.
    pub fn sent(&self) -> usize {
        self.outside.iter().map(|wire| std::iter::from_fn(|| wire.receive()).count()).sum()
    }

    /// The pipeline by itself.
    pub fn into_edge(self) -> Edge {
        self.edge
    }
}

/// The second frame of each flow of a traffic, as it comes from the host.
pub fn sent_by_host(traffic: Traffic) -> impl Iterator<Item = Vec<u8>> {
    (0..traffic.flows).map(move |flow| traffic.nth_frame(flow, 1))
}

/// What answers all flows of a traffic.
pub fn answers(traffic: Traffic) -> impl Iterator<Item = Vec<u8>> {
    (0..traffic.flows).map(move |flow| traffic.answer(flow, UPLINK_MAC))
}

/// Opens some flows of a traffic: both hosts have spoken, and TCP's connections are open. Of RoCEv2 only one side speaks.
pub fn opened(stage: Stage, traffic: Traffic, flows: Range<u32>) -> Stage {
    let opening = flows.clone().map(|flow| traffic.opening(flow));
    let stage = stage.with(HOST, opening).played();
    if traffic.transport == Transport::Roce {
        return stage;
    }
    let answers = flows.clone().map(|flow| traffic.first_answer(flow, UPLINK_MAC));
    stage.with(UPLINK, answers).played().with(HOST, flows.map(|flow| traffic.nth_frame(flow, 0))).played()
}
