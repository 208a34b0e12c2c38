//! Who serves which queue, and who owns which packet.

/// A worker's number, from zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct WorkerId(pub u16);

/// Whose a packet is, where there are several workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// Whoever received it: nothing is remembered of it.
    Receiver,
    /// The first worker, which does what is done once for the box.
    First,
    /// The worker of that hash by [`packet::rss::Table`], which a card may have sent it to in the first place.
    Hash(u32),
}

/// The queues of each port, spread over the workers.
///
/// A port with as many queues as there are workers gives queue `n` to worker `n`, so that a card that hashes as
/// [`packet::rss`] does delivers to the owner. A port with fewer begins at another worker than the port before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    workers: u16,
    /// By port.
    queues: Vec<u16>,
}

impl Layout {
    /// Of `workers` workers, at least one, on ports with so many queues each, at most one for each worker.
    pub fn new(workers: u16, queues: impl IntoIterator<Item = u16>) -> Self {
        let workers = workers.max(1);
        Self { workers, queues: queues.into_iter().map(|queues| queues.clamp(1, workers)).collect() }
    }

    /// How many workers.
    pub fn workers(&self) -> u16 {
        self.workers
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0..self.workers).map(WorkerId)
    }

    /// How many ports.
    pub fn ports(&self) -> usize {
        self.queues.len()
    }

    /// The worker's queue of the port with that index; `None` when the port has none for it.
    pub fn queue(&self, port: usize, worker: WorkerId) -> Option<u16> {
        let queue = (worker.0 + self.workers - self.first(port)) % self.workers;
        (queue < *self.queues.get(port)?).then_some(queue)
    }

    /// By port, the worker that sends what this one has to send there: itself where it has a queue.
    pub(crate) fn senders(&self, worker: WorkerId) -> Vec<WorkerId> {
        let sender = |(port, queues): (usize, &u16)| match self.queue(port, worker) {
            Some(_) => worker,
            None => WorkerId((self.first(port) + worker.0 % queues) % self.workers),
        };
        self.queues.iter().enumerate().map(sender).collect()
    }

    /// The worker of the port's queue 0.
    fn first(&self, port: usize) -> u16 {
        let queues = self.queues.get(port).copied().unwrap_or(1);
        if queues == self.workers { 0 } else { (port % usize::from(self.workers)) as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_has_one_worker_and_every_worker_a_way_out() {
        for workers in 1..=9 {
            let layout = Layout::new(workers, [1, 2, 3, 64, 0, 1, 5]);
            for port in 0..layout.ports() {
                let queues: Vec<_> = layout.all().filter_map(|worker| layout.queue(port, worker)).collect();
                let mut sorted = queues.clone();
                sorted.sort_unstable();
                assert_eq!(
                    sorted,
                    (0..layout.queues[port]).collect::<Vec<_>>(),
                    "{workers} workers, port {port}"
                );
                for worker in layout.all() {
                    let sender = layout.senders(worker)[port];
                    assert!(
                        layout.queue(port, sender).is_some(),
                        "{workers} workers, port {port}, {worker:?}"
                    );
                    assert!(layout.queue(port, worker).is_none() || sender == worker);
                }
            }
        }
    }

    #[test]
    fn a_port_with_a_queue_for_each_gives_them_in_order_and_others_take_turns() {
        let layout = &Layout::new(4, [4, 1, 1, 1, 1, 2]);
        let workers = |port| layout.all().filter(move |worker| layout.queue(port, *worker).is_some());
        assert!(layout.all().all(|worker| layout.queue(0, worker) == Some(worker.0)));
        let firsts: Vec<u16> = (1..5).map(|port| workers(port).map(|worker| worker.0).sum()).collect();
        assert_eq!(firsts, [1, 2, 3, 0]);
        assert_eq!(workers(5).collect::<Vec<_>>(), [WorkerId(1), WorkerId(2)]);
        assert_eq!(layout.queue(6, WorkerId(0)), None, "no such port");
    }
}
