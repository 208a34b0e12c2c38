//! Forwards bursts from one port to another, as `dpdk-testpmd --forward-mode=io` does, and tells what a packet costs.
//!
//! `io [--source DEVARGS] [--sink DEVARGS] [--cpu N] [--seconds N] [--mbufs N]`; by default from net_null to
//! net_null. A sink that is the source (by the same arguments) is the same port.
//! The source is polled and the sink sent to by one lcore on CPU `N`. It prints million packets per second of the time that
//! the lcore's thread ran (other threads may have had the CPU meanwhile), TSC cycles per packet of that time, and the share
//! of the CPU that it had. It fails if an mbuf is lost.

use std::{env, error::Error, mem, thread};

use arrayvec::ArrayVec;
use dpdk::{Eal, EthDev, LcoreGuard, Mempool, PoolConfig, Port, PortConfig, RxQueue, TxQueue, UniqueMbuf};

type Result<T> = core::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let mut option = Options::parse()?;
    let (source, sink) = (option.text("--source", "net_null0"), option.text("--sink", "net_null1"));
    let (cpu, seconds, mbufs) =
        (option.number("--cpu", 1)?, option.number("--seconds", 5)?, option.number("--mbufs", 16_383)?);
    option.all_known()?;

    let eal = Eal::builder().lcores([0]).no_pci().in_memory().init()?;
    let pool = Mempool::new(&eal, &PoolConfig::new("io", mbufs as u32))?;
    let open = |devargs: &str| -> Result<Port> {
        Ok(EthDev::open(&eal, devargs)?.start(&PortConfig::new(1, pool.clone()))?)
    };
    let same = source == sink;
    let mut source = open(&source)?;
    let mut sink = if same { None } else { Some(open(&sink)?) };
    let before = pool.level();
    let rx = source.take_rx(0).ok_or("no queue")?;
    let tx = sink.as_mut().unwrap_or(&mut source).take_tx(0).ok_or("no queue")?;
    let hz = dpdk::tsc_hz(&eal);
    let report =
        thread::scope(|scope| scope.spawn(|| on_lcore(&eal, cpu, (rx, tx), seconds as u64 * hz)).join());
    let (packets, ticks, ran_s) = report.map_err(|_| "the lcore panicked")??;
    let (mpps, cycles) = (packets as f64 / ran_s / 1e6, ran_s * hz as f64 / packets as f64);
    println!(
        "{mpps:.2} Mpps {cycles:.2} cycles/packet {:.0}% of the CPU",
        100.0 * ran_s * hz as f64 / ticks as f64
    );
    if pool.level() == before {
        Ok(())
    } else {
        Err(format!("mbufs lost: {before:?} before, {:?} after", pool.level()).into())
    }
}

/// Packets sent, ticks that it took, and seconds that this thread had a CPU meanwhile.
fn on_lcore(eal: &Eal, cpu: usize, (rx, tx): (RxQueue, TxQueue), ticks: u64) -> Result<(u64, u64, f64)> {
    pin(cpu)?;
    let _lcore = LcoreGuard::register(eal)?;
    let before_s = ran_s();
    let (packets, spent) = forward(rx, tx, ticks);
    Ok((packets, spent, ran_s() - before_s))
}

/// Seconds that this thread has had a CPU.
fn ran_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is every thread's own, and `time` is written.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Packets sent, and ticks that it took.
fn forward(mut rx: RxQueue, mut tx: TxQueue, ticks: u64) -> (u64, u64) {
    let mut burst = ArrayVec::<UniqueMbuf, 32>::new();
    let mut packets = 0;
    let start = dpdk::tsc();
    loop {
        // Reading the clock costs as much as a packet.
        for _ in 0..1000 {
            rx.receive_unique(&mut burst);
            packets += tx.transmit(&mut burst) as u64;
            dpdk::free_burst(&mut burst);
        }
        let spent = dpdk::tsc() - start;
        if spent >= ticks {
            return (packets, spent);
        }
    }
}

fn pin(cpu: usize) -> Result<()> {
    // SAFETY: an all-zero set is valid, `CPU_SET` checks its index, and the set's size is passed with it.
    let code = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    if code == 0 { Ok(()) } else { Err(format!("cannot run on CPU {cpu}").into()) }
}

/// `--name value` pairs.
struct Options(Vec<(String, String)>);

impl Options {
    fn parse() -> Result<Self> {
        let words: Vec<String> = env::args().skip(1).collect();
        let pairs = words.chunks(2).map(|pair| match pair {
            [name, value] => Ok((name.clone(), value.clone())),
            _ => Err(format!("{} needs a value", pair[0]).into()),
        });
        pairs.collect::<Result<_>>().map(Self)
    }

    fn text(&mut self, name: &str, default: &str) -> String {
        let at = self.0.iter().position(|(option, _)| option == name);
        at.map_or(default.into(), |at| self.0.remove(at).1)
    }

    fn number(&mut self, name: &str, default: usize) -> Result<usize> {
        let text = self.text(name, &default.to_string());
        text.parse().map_err(|_| format!("{name} needs a number, not {text}").into())
    }

    fn all_known(self) -> Result<()> {
        self.0.first().map_or(Ok(()), |(name, _)| Err(format!("there is no option {name}").into()))
    }
}
