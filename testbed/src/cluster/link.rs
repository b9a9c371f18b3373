//! The link between emulated nodes: a switch whose ports are TAP devices, with a rate for each port and a delay for each path.
//!
//! A frame occupies its sender's port for as long as its bits take at the rate, travels for the delay, and then occupies its receiver's
//! port for as long again, after the frames before it. Kernels without `netem` cannot delay frames; this process does, and finally prints
//! the delays that frames really had.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::tap::tap;
use super::wire::{Wire, rate_text, time_text};

/// Maximum size of a frame in bytes: an MTU of 9000, and the header.
const FRAME: usize = 9100;

/// Maximum bytes queued at a port; further frames are dropped, as by any switch.
const QUEUE: usize = 16 << 20;

/// Hardware (MAC) address of a node.
pub(crate) fn address(node: usize) -> [u8; 6] {
    [2, 0, 0, 0, (node >> 8) as u8, node as u8]
}

/// A frame in transit. Frames are ordered by due time, then by the order in which they were sent.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    due: Instant,
    order: u64,
    taken: Instant,
    to: usize,
    bytes: Vec<u8>,
}

/// Statistics of a link.
#[derive(Default)]
struct Count {
    frames: u64,
    bytes: u64,
    dropped: u64,
    /// Time in transit of each of the first million frames, in ns; `late` holds the times by which these frames came later than they were
    /// due.
    way: Vec<u32>,
    late: Vec<u32>,
}

/// Switches frames between the named devices until standard input ends; then prints statistics.
pub(crate) fn run(devices: &[String], wire: &Wire) -> Result<()> {
    let mut ports: Vec<File> = devices.iter().map(|name| tap(name)).collect::<Result<_>>()?;
    println!("ready");
    std::io::stdout().flush()?;
    let began = Instant::now();
    let mut switch = Switch {
        wire,
        began,
        out: vec![began; ports.len()],
        into: vec![began; ports.len()],
        queued: vec![0; ports.len()],
        order: 0,
        waiting: BinaryHeap::new(),
        count: Count::default(),
    };
    let input = std::io::stdin();
    loop {
        switch.deliver(&mut ports);
        let left = switch.next_due().map(|due| due.saturating_duration_since(Instant::now()));
        let left = left.unwrap_or(Duration::from_secs(1));
        let ready: Vec<bool> = {
            let mut fds: Vec<PollFd<'_>> = ports.iter().map(|port| PollFd::new(port, PollFlags::IN)).collect();
            fds.push(PollFd::new(&input, PollFlags::IN));
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut fds, Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            fds.iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        // The process that started the link has ended.
        if ready[ports.len()] && matches!(input.lock().read(&mut [0; 64]), Ok(0) | Err(_)) {
            break;
        }
        for port in (0..ports.len()).filter(|&port| ready[port]) {
            switch.take(&mut ports, port)?;
        }
    }
    switch.add_row();
    Ok(())
}

struct Switch<'a> {
    wire: &'a Wire,
    began: Instant,
    /// Time until which each port is busy sending frames of its node; `into` is the time until which it is busy delivering frames to its
    /// node.
    out: Vec<Instant>,
    into: Vec<Instant>,
    /// Bytes queued for each port.
    queued: Vec<usize>,
    order: u64,
    waiting: BinaryHeap<Reverse<Frame>>,
    count: Count,
}

impl Switch<'_> {
    fn next_due(&self) -> Option<Instant> {
        self.waiting.peek().map(|Reverse(frame)| frame.due)
    }

    /// Reads frames that a node has sent, and forwards them.
    fn take(&mut self, ports: &mut [File], from: usize) -> Result<()> {
        for _ in 0..32 {
            let mut bytes = vec![0; FRAME];
            let length = match ports[from].read(&mut bytes) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The device is down, because its namespace is gone.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            bytes.truncate(length);
            self.forward(from, bytes);
        }
        Ok(())
    }

    fn forward(&mut self, from: usize, bytes: Vec<u8>) {
        let now = Instant::now();
        let node = |at: &[u8]| (at[..4] == address(0)[..4]).then(|| usize::from(at[4]) << 8 | usize::from(at[5]));
        // Nodes have static neighbour tables, so broadcasts are of no use and are discarded.
        let Some(to) = bytes.get(..6).and_then(node).filter(|&to| to < self.out.len() && to != from) else {
            return;
        };
        self.count.frames += 1;
        self.count.bytes += bytes.len() as u64;
        if self.wire.is_lost(from, to, now - self.began) || self.queued[to] + bytes.len() > QUEUE {
            self.count.dropped += 1;
            return;
        }
        let takes = self.wire.takes(bytes.len());
        self.out[from] = self.out[from].max(now) + takes;
        let there = self.out[from] + self.wire.delay(from, to);
        self.into[to] = there.max(self.into[to] + takes);
        let due = self.into[to];
        self.queued[to] += bytes.len();
        self.order += 1;
        self.waiting.push(Reverse(Frame { due, order: self.order, taken: now, to, bytes }));
    }

    /// Delivers the frames that are due.
    fn deliver(&mut self, ports: &mut [File]) {
        loop {
            let now = Instant::now();
            if self.next_due().is_none_or(|due| due > now) {
                return;
            }
            let Some(Reverse(frame)) = self.waiting.pop() else { return };
            self.queued[frame.to] -= frame.bytes.len();
            if ports[frame.to].write(&frame.bytes).is_err() {
                self.count.dropped += 1;
            }
            if self.count.late.len() < 1_000_000 {
                let nanos = |time: Duration| time.as_nanos().min(u32::MAX.into()) as u32;
                self.count.late.push(nanos(now - frame.due));
                self.count.way.push(nanos(now - frame.taken));
            }
        }
    }

    fn add_row(&mut self) {
        let Count { frames, bytes, dropped, way, late } = &mut self.count;
        way.sort_unstable();
        late.sort_unstable();
        let at = |times: &[u32], share: f64| {
            let nanos = times.get(((times.len() as f64 - 1.0) * share) as usize).copied().unwrap_or(0);
            time_text(Duration::from_nanos(nanos.into()))
        };
        let busy = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let busy = busy.tv_sec as f64 + busy.tv_nsec as f64 / 1e9;
        let load = 100.0 * busy / self.began.elapsed().as_secs_f64();
        let further = self.wire.rack_delay.map(|more| format!(" ({} more between racks)", time_text(more)));
        eprintln!(
            "link: {frames} frames, {:.1} MB, {dropped} dropped; asked for {}{} at {}; frames were on their way {} in the median, {} at 99 %, {} at most, and {} late in the median, {} at 99 %; {load:.0} % of a core",
            *bytes as f64 / 1e6,
            time_text(self.wire.delay),
            further.unwrap_or_default(),
            rate_text(self.wire.rate),
            at(way, 0.5),
            at(way, 0.99),
            at(way, 1.0),
            at(late, 0.5),
            at(late, 0.99),
        );
    }
}
