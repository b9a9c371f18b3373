//! Exchange of single messages, for measurements.

use std::time::Duration;

use bruckner_runtime::{Peer, Transport, TransportError};

use crate::transport::{MpiTransport, Requests};

/// Tag of all messages of this module.
const TAG: u32 = 0;

impl MpiTransport {
    /// Posts all sends and receives at once, and waits until all are complete. Several messages may have the same rank.
    pub fn exchange(
        &self,
        requests: &mut Requests,
        sends: &[(u32, &[u8])],
        receives: &mut [(u32, &mut [u8])],
    ) -> Result<(), TransportError> {
        let all = sends.len() + receives.len();
        if requests.count() < all {
            *requests = self.requests(all);
        }
        let peer = |rank: u32| Peer { rank, tag: TAG };
        let mut posted = 0;
        let mut post = || {
            for (rank, data) in receives.iter_mut() {
                // SAFETY: the buffer is borrowed until all posted messages are complete.
                unsafe { self.recv(requests, posted, data.as_mut_ptr(), data.len(), peer(*rank)) }?;
                posted += 1;
            }
            for (rank, data) in sends {
                // SAFETY: the buffer is borrowed until all posted messages are complete.
                unsafe { self.send(requests, posted, data.as_ptr(), data.len(), peer(*rank)) }?;
                posted += 1;
            }
            Ok(())
        };
        let result = post();
        self.finish(requests, 0..posted).and(result)
    }

    /// Receives a message of one byte from rank `from` without spinning: sleeps for `nap` between two tests.
    pub fn recv_sleeping(&self, from: u32, nap: Duration) -> Result<(), TransportError> {
        let (mut requests, mut data) = (self.requests(1), [0u8; 1]);
        // SAFETY: the buffer lives until the message has arrived.
        unsafe { self.recv(&mut requests, 0, data.as_mut_ptr(), 1, Peer { rank: from, tag: TAG }) }?;
        while !self.test(&mut requests, 0..1)? {
            std::thread::sleep(nap);
        }
        Ok(())
    }
}
