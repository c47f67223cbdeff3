//! Ranks that work together: what each says, to whom, and that all say the same kind of thing at a time.

use super::{
    Communicator, Means, ParallelError, Sums,
    comm_thread::{End, Line, Pending, Speaker},
    exact_sum as reduce,
};
use std::{
    fmt,
    sync::Arc,
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
    /// Which gradients come next, before it is known of what step.
    Ahead = 8,
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
    /// How much of it this rank has stood still for; the rest was hidden behind its own work.
    pub waited: Duration,
}

impl Traffic {
    /// Time in exchanges that were hidden behind this rank's own work.
    #[must_use]
    pub const fn hidden(&self) -> Duration {
        self.time.saturating_sub(self.waited)
    }
}

/// The ranks of a training, as one of them sees them. Clones are the same rank.
#[derive(Clone)]
pub struct Group {
    /// None for one rank alone.
    speaker: Option<Arc<Speaker>>,
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
        Self { speaker: None, rank: 0, size: 1 }
    }

    /// The ranks that this communicator reaches.
    pub fn new(communicator: impl Communicator + 'static) -> Self {
        let (rank, size) = (communicator.rank(), communicator.size());
        let line = Line { communicator: Some(Box::new(communicator)), rank, others: size - 1, ..Line::default() };
        Self { speaker: Some(Arc::new(Speaker::new(line))), rank, size }
    }

    /// Whether there is nobody to reach, not even by a world of one.
    pub(crate) const fn is_alone(&self) -> bool {
        self.speaker.is_none()
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
        self.speaker.as_ref().map_or_else(Traffic::default, |speaker| speaker.traffic())
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
        // Whoever fails does not ask any more what became of exchanges that are under way.
        let end = self.speaker.as_ref().and_then(|speaker| {
            speaker.look(|line| {
                line.failed = None;
                line.end
            })
        });
        match end {
            Some(End::None) => matches!(self.gather(Kind::Failed, why.as_bytes()), Err(ParallelError::Failed { .. })),
            Some(End::Known) => true,
            Some(End::Broken) | None => false,
        }
    }

    /// The first of the ranks that still answer, if some were found silent ([`ParallelError::Silent`]): who is to say so,
    /// since all of these know it.
    #[must_use]
    pub fn speaker(&self) -> Option<usize> {
        let silent = self.speaker.as_ref()?.look(|line| line.silent.clone())?;
        (0..self.size).find(|rank| !silent.contains(rank)).filter(|_| !silent.is_empty())
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

    /// What all ranks say, by rank.
    ///
    /// # Errors
    /// A rank that is gone, has failed, or says something of another kind.
    pub(crate) fn gather(&self, kind: Kind, mine: &[u8]) -> Result<Vec<Vec<u8>>, ParallelError> {
        let Some(speaker) = &self.speaker else { return Ok(vec![mine.to_vec()]) };
        let mine = mine.to_vec();
        speaker.say(move |line| line.gather(kind, &mine))
    }

    /// The mean over all parts of all ranks. Only where all ranks have just gathered something, so that none is elsewhere.
    ///
    /// # Errors
    /// A rank that is gone.
    pub(crate) fn mean(&self, sums: Sums, parts: u32) -> Result<Means, ParallelError> {
        match &self.speaker {
            Some(speaker) => speaker.say(move |line| reduce::mean(line, sums, parts)),
            None => reduce::mean(&mut Line::default(), sums, parts),
        }
    }

    /// The same, while this rank goes on. All ranks say first that they come to these gradients, by the same number: so
    /// one that has failed is heard, and one that is elsewhere is found.
    pub(crate) fn begin_mean(&self, number: u32, sums: Sums, parts: u32) -> Pending<Means> {
        Pending::begun(self.speaker.clone(), move |line| {
            let mine = number.to_le_bytes();
            let all = line.gather(Kind::Ahead, &mine)?;
            match all.iter().position(|other| *other != mine) {
                Some(rank) => Err(ParallelError::Apart(rank)),
                None => reduce::mean(line, sums, parts),
            }
        })
    }

    /// Counts so many bytes each way that devices have exchanged by themselves since `start`.
    pub(crate) fn carried(&self, bytes: u64, start: Instant) {
        if let Some(speaker) = &self.speaker {
            speaker.look(move |line| line.carried(bytes, start));
        }
    }
}
