//! Ranks that work together: what each says, to whom, and that all say the same kind of thing at a time.

use super::{Communicator, ParallelError};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Bytes that are shared at a time.
const SHARED: usize = 1 << 28;

/// What a message is; its first byte. A rank that is elsewhere in the program is found by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Why the sender cannot go on.
    Failed = 0,
    /// Something that all were told.
    Told = 1,
    /// First values of parameters.
    Values = 2,
    /// Exponents that were decided inside the step.
    Decisions = 3,
    /// What an attempt at a step saw.
    Seen = 4,
    /// Mean gradients.
    Means = 5,
    /// The end of a training.
    Done = 6,
    /// What a batch norm has seen of its batch.
    Moments = 7,
}

/// What this rank has sent and received so far, and how long it waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes to other ranks.
    pub sent: u64,
    /// Bytes from other ranks.
    pub received: u64,
    /// Time in exchanges, waiting for slower ranks included.
    pub time: Duration,
}

struct Inner {
    communicator: Box<dyn Communicator>,
    traffic: Traffic,
    end: End,
    /// Who was found to be silent.
    silent: Vec<usize>,
}

impl Inner {
    /// An exchange that failed.
    fn broken(&mut self, error: &ParallelError) {
        self.end = End::Broken;
        if let ParallelError::Silent { ranks, .. } = error {
            self.silent.clone_from(ranks);
        }
    }
}

/// How ranks came apart, if they did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    None,
    /// One cannot go on, and has said so to all.
    Known,
    /// Some cannot be reached, or are elsewhere.
    Broken,
}

/// The ranks of a training, as one of them sees them. Clones are the same rank.
#[derive(Clone)]
pub struct Group {
    /// None for one rank alone.
    inner: Option<Arc<Mutex<Inner>>>,
    rank: usize,
    size: usize,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Group {
    /// One rank.
    #[must_use]
    pub const fn alone() -> Self {
        Self { inner: None, rank: 0, size: 1 }
    }

    /// The ranks that this communicator reaches.
    pub fn new(communicator: impl Communicator + 'static) -> Self {
        let (rank, size) = (communicator.rank(), communicator.size());
        let (traffic, end, silent) = (Traffic::default(), End::None, Vec::new());
        let inner = Inner { communicator: Box::new(communicator), traffic, end, silent };
        Self { inner: Some(Arc::new(Mutex::new(inner))), rank, size }
    }

    /// Whether there is nobody to reach, not even by a world of one.
    pub(crate) const fn is_alone(&self) -> bool {
        self.inner.is_none()
    }

    /// This rank's number, from 0.
    #[must_use]
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// What has travelled so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.locked().map_or_else(Traffic::default, |inner| inner.traffic)
    }

    /// That all ranks were told the same.
    ///
    /// # Errors
    /// The first rank to which something else was said than to rank 0; all ranks get the same error.
    pub fn agree(&self, what: &str, mine: &str) -> Result<(), ParallelError> {
        let all = self.gather(Kind::Told, mine.as_bytes())?;
        let Some((first, others)) = all.split_first() else { return Ok(()) };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match others.iter().position(|other| other != first) {
            None => Ok(()),
            Some(at) => Err(ParallelError::Other {
                rank: at + 1,
                what: what.to_owned(),
                there: text(&others[at]),
                first: text(first),
            }),
        }
    }

    /// Tells the others that this rank cannot go on: their next exchange ends with its words. Nothing is said if they know
    /// already. Whether all know.
    pub fn fail(&self, why: &str) -> bool {
        match self.locked().map(|inner| inner.end) {
            Some(End::None) => matches!(self.gather(Kind::Failed, why.as_bytes()), Err(ParallelError::Failed { .. })),
            Some(End::Known) => true,
            Some(End::Broken) | None => false,
        }
    }

    /// The first of the ranks that still answer, if some were found silent ([`ParallelError::Silent`]): who is to say so,
    /// since all of these know it.
    #[must_use]
    pub fn speaker(&self) -> Option<usize> {
        let inner = self.locked().filter(|inner| !inner.silent.is_empty())?;
        (0..self.size).find(|rank| !inner.silent.contains(rank))
    }

    /// Waits until all ranks have come to the end: whoever failed on the way is heard.
    ///
    /// # Errors
    /// A rank that did not come to the end.
    pub fn finish(&self) -> Result<(), ParallelError> {
        self.gather(Kind::Done, &[]).map(drop)
    }

    /// A number of each rank, by rank.
    ///
    /// # Errors
    /// A rank that is gone or has failed.
    pub fn numbers(&self, mine: u64) -> Result<Vec<u64>, ParallelError> {
        let all = self.gather(Kind::Told, &mine.to_le_bytes())?;
        let number = |(rank, bytes): (usize, Vec<u8>)| {
            bytes.try_into().map(u64::from_le_bytes).map_err(|_| ParallelError::Apart(rank))
        };
        all.into_iter().enumerate().map(number).collect()
    }

    /// What rank 0 has, on all ranks; what others give is not looked at.
    ///
    /// # Errors
    /// A rank that is gone or has failed.
    pub fn share(&self, mine: &[u8]) -> Result<Vec<u8>, ParallelError> {
        let mine = if self.rank == 0 { mine } else { &[] };
        let (mut parts, mut all) = (mine.chunks(SHARED), Vec::new());
        loop {
            let first = self.gather(Kind::Told, parts.next().unwrap_or_default())?.into_iter().next();
            let first = first.unwrap_or_default();
            all.extend_from_slice(&first);
            if first.len() < SHARED {
                return Ok(all);
            }
        }
    }

    fn locked(&self) -> Option<MutexGuard<'_, Inner>> {
        self.inner.as_ref().map(|inner| inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What all ranks say, by rank.
    ///
    /// # Errors
    /// A rank that is gone, has failed, or says something of another kind.
    pub(crate) fn gather(&self, kind: Kind, mine: &[u8]) -> Result<Vec<Vec<u8>>, ParallelError> {
        let Some(mut inner) = self.locked() else { return Ok(vec![mine.to_vec()]) };
        let start = Instant::now();
        let mut message = Vec::with_capacity(mine.len() + 1);
        message.push(kind as u8);
        message.extend_from_slice(mine);
        let all = inner.communicator.all_gather(&message);
        let all = all.inspect_err(|error| inner.broken(error))?;
        inner.traffic.sent += (message.len() * (self.size - 1)) as u64;
        inner.traffic.received += all.iter().map(|one| one.len() as u64).sum::<u64>() - message.len() as u64;
        inner.traffic.time += start.elapsed();
        let of = |one: &[u8]| one.first().copied();
        let failed = all.iter().position(|one| of(one) == Some(Kind::Failed as u8));
        if let Some(rank) = failed {
            inner.end = End::Known;
            return Err(ParallelError::Failed { rank, why: String::from_utf8_lossy(&all[rank][1..]).into_owned() });
        }
        if let Some(rank) = all.iter().position(|one| of(one) != Some(kind as u8)) {
            inner.end = End::Broken;
            return Err(ParallelError::Apart(rank));
        }
        Ok(all.into_iter().map(|mut one| one.split_off(1)).collect())
    }

    /// The sums of what all ranks give. Only where all ranks have just gathered something, so that none is elsewhere. What
    /// travels is the engine's affair; counted is the least that such a sum needs.
    ///
    /// # Errors
    /// A rank that is gone.
    pub(super) fn reduce(&self, values: &mut Vec<f32>) -> Result<(), ParallelError> {
        let Some(mut inner) = self.locked() else { return Ok(()) };
        let start = Instant::now();
        let summed = inner.communicator.all_reduce(values);
        summed.inspect_err(|error| inner.broken(error))?;
        let bytes = (2 * size_of::<f32>() * values.len() * (self.size - 1) / self.size) as u64;
        inner.traffic.sent += bytes;
        inner.traffic.received += bytes;
        inner.traffic.time += start.elapsed();
        Ok(())
    }

    /// Counts so many bytes each way that devices have exchanged by themselves since `start`.
    pub(crate) fn carried(&self, bytes: u64, start: Instant) {
        if let Some(mut inner) = self.locked() {
            inner.traffic.sent += bytes;
            inner.traffic.received += bytes;
            inner.traffic.time += start.elapsed();
        }
    }

    /// Sends each rank its part. Only where all ranks have just gathered something, so that none is elsewhere.
    ///
    /// # Errors
    /// A rank that is gone.
    pub(super) fn exchange(&self, to: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ParallelError> {
        let Some(mut inner) = self.locked() else { return Ok(to) };
        let start = Instant::now();
        let from = inner.communicator.all_to_all(&to);
        let from = from.inspect_err(|error| inner.broken(error))?;
        let others = |all: &[Vec<u8>]| {
            let lens = all.iter().enumerate().filter(|(rank, _)| *rank != self.rank).map(|(_, one)| one.len() as u64);
            lens.sum::<u64>()
        };
        inner.traffic.sent += others(&to);
        inner.traffic.received += others(&from);
        inner.traffic.time += start.elapsed();
        Ok(from)
    }
}
