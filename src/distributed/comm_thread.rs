//! The line to other ranks, and the thread that speaks on it.
//!
//! One thread of a rank says all that is said, in the order in which it is asked to, whoever asks: so all ranks that ask
//! for the same exchanges make them in the same order, also where whoever asked goes on meanwhile.

use super::{Communicator, Kind, ParallelError, Traffic};
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

/// How ranks came apart, if they did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    #[default]
    None,
    /// One cannot go on, and has said so to all.
    Known,
    /// Some cannot be reached, or are elsewhere.
    Broken,
}

/// What reaches the others, and what is known of them.
#[derive(Default)]
pub(super) struct Line {
    /// None of one rank alone.
    pub communicator: Option<Box<dyn Communicator>>,
    pub rank: usize,
    /// Ranks besides this one.
    pub others: usize,
    pub traffic: Traffic,
    pub end: End,
    /// Who was found to be silent.
    pub silent: Vec<usize>,
    /// What became of exchanges that nobody has asked after yet: until then nothing else is said.
    pub failed: Option<ParallelError>,
    pub still: Still,
}

/// Since when somebody stands still until an answer comes.
#[derive(Clone, Default)]
pub(super) struct Still(Arc<Mutex<Option<Instant>>>);

impl Still {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While this runs.
    fn during<T>(&self, wait: impl FnOnce() -> T) -> T {
        *self.lock() = Some(Instant::now());
        let answer = wait();
        *self.lock() = None;
        answer
    }
}

impl Line {
    /// An exchange that failed.
    fn broken(&mut self, error: &ParallelError) {
        self.end = End::Broken;
        if let ParallelError::Silent { ranks, .. } = error {
            self.silent.clone_from(ranks);
        }
    }

    /// What all ranks say, by rank.
    pub fn gather(&mut self, kind: Kind, mine: &[u8]) -> Result<Vec<Vec<u8>>, ParallelError> {
        let Some(communicator) = &mut self.communicator else { return Ok(vec![mine.to_vec()]) };
        let start = Instant::now();
        let mut message = Vec::with_capacity(mine.len() + 1);
        message.push(kind as u8);
        message.extend_from_slice(mine);
        let all = communicator.all_gather(&message);
        let all = all.inspect_err(|error| self.broken(error))?;
        self.traffic.sent += (message.len() * self.others) as u64;
        self.traffic.received += all.iter().map(|one| one.len() as u64).sum::<u64>() - message.len() as u64;
        self.took(start);
        let of = |one: &[u8]| one.first().copied();
        let failed = all.iter().position(|one| of(one) == Some(Kind::Failed as u8));
        if let Some(rank) = failed {
            self.end = End::Known;
            return Err(ParallelError::Failed { rank, why: String::from_utf8_lossy(&all[rank][1..]).into_owned() });
        }
        if let Some(rank) = all.iter().position(|one| of(one) != Some(kind as u8)) {
            self.end = End::Broken;
            return Err(ParallelError::Apart(rank));
        }
        Ok(all.into_iter().map(|mut one| one.split_off(1)).collect())
    }

    /// The sums of what all ranks give. Only where all ranks have just gathered something, so that none is elsewhere. What
    /// travels is the engine's affair; counted is the least that such a sum needs.
    pub fn reduce(&mut self, values: &mut Vec<f32>) -> Result<(), ParallelError> {
        let Some(communicator) = &mut self.communicator else { return Ok(()) };
        let start = Instant::now();
        let summed = communicator.all_reduce(values);
        summed.inspect_err(|error| self.broken(error))?;
        let bytes = (2 * size_of::<f32>() * values.len() * self.others / (self.others + 1)) as u64;
        self.traffic.sent += bytes;
        self.traffic.received += bytes;
        self.took(start);
        Ok(())
    }

    /// Sends each rank its part. Only where all ranks have just gathered something, so that none is elsewhere.
    pub fn exchange(&mut self, to: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ParallelError> {
        let Some(communicator) = &mut self.communicator else { return Ok(to) };
        let start = Instant::now();
        let from = communicator.all_to_all(&to);
        let from = from.inspect_err(|error| self.broken(error))?;
        let others = |all: &[Vec<u8>]| {
            let lens = all.iter().enumerate().filter(|(rank, _)| *rank != self.rank).map(|(_, one)| one.len() as u64);
            lens.sum::<u64>()
        };
        let (sent, received) = (others(&to), others(&from));
        self.traffic.sent += sent;
        self.traffic.received += received;
        self.took(start);
        Ok(from)
    }

    /// Counts the time of an exchange, and how much of it somebody has stood still.
    fn took(&mut self, start: Instant) {
        let end = Instant::now();
        self.traffic.time += end - start;
        if let Some(since) = *self.still.lock() {
            self.traffic.waited += end.saturating_duration_since(since.max(start));
        }
    }

    /// Counts what went another way since `start`, while nothing was said here: so many bytes each way.
    pub fn carried(&mut self, bytes: u64, start: Instant) {
        self.traffic.sent += bytes;
        self.traffic.received += bytes;
        self.traffic.time += start.elapsed();
        self.traffic.waited += start.elapsed();
    }

    /// Says something that somebody waits for. What failed before, and nobody has heard of, is the answer then.
    fn answer<T>(&mut self, say: impl FnOnce(&mut Self) -> Result<T, ParallelError>) -> Result<T, ParallelError> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => say(self),
        }
    }

    /// Says something that is asked after later. Others are elsewhere once something has failed.
    fn ahead<T>(&mut self, say: impl FnOnce(&mut Self) -> Result<T, ParallelError>) -> Result<T, ParallelError> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => say(self).inspect_err(|error| self.failed = Some(error.clone())),
        }
    }
}

type Job = Box<dyn FnOnce(&mut Line) + Send>;

/// The thread that has the line.
pub(super) struct Speaker {
    /// Closed by the end of this.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    still: Still,
}

impl Speaker {
    pub fn new(mut line: Line) -> Self {
        let ((jobs, asked), still) = (channel::<Job>(), line.still.clone());
        let thread = thread::spawn(move || asked.iter().for_each(|job| job(&mut line)));
        Self { jobs: Some(jobs), thread: Some(thread), still }
    }

    /// Looks at the line once all is said that was asked for; none if the thread has died.
    pub fn look<T: Send + 'static>(&self, look: impl FnOnce(&mut Line) -> T + Send + 'static) -> Option<T> {
        self.begin(look).recv().ok()
    }

    /// Says something, and waits.
    pub fn say<T: Send + 'static>(
        &self, say: impl FnOnce(&mut Line) -> Result<T, ParallelError> + Send + 'static,
    ) -> Result<T, ParallelError> {
        self.still.during(|| answer_of(&self.begin(|line| line.answer(say))))
    }

    fn begin<T: Send + 'static>(&self, job: impl FnOnce(&mut Line) -> T + Send + 'static) -> Receiver<T> {
        let (answer, answers) = channel();
        let job = move |line: &mut Line| {
            // Nobody may want to know it any more.
            answer.send(job(line)).ok();
        };
        if let Some(jobs) = &self.jobs {
            jobs.send(Box::new(job)).ok();
        }
        answers
    }

    /// What has travelled.
    pub fn traffic(&self) -> Traffic {
        self.look(|line| line.traffic).unwrap_or_default()
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.jobs = None;
        self.thread.take().map(JoinHandle::join);
    }
}

/// An exchange that is under way, or will be when those before it are over.
pub(crate) struct Pending<T> {
    /// None of one rank alone, where all is done at once.
    speaker: Option<Arc<Speaker>>,
    answers: Receiver<Result<T, ParallelError>>,
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Pending<T> {
    /// Asks for an exchange that comes behind all that were asked for before.
    pub(super) fn begun(
        speaker: Option<Arc<Speaker>>, say: impl FnOnce(&mut Line) -> Result<T, ParallelError> + Send + 'static,
    ) -> Self {
        let ahead = |line: &mut Line| line.ahead(say);
        let answers = match &speaker {
            Some(speaker) => speaker.begin(ahead),
            None => {
                let (answer, answers) = channel();
                answer.send(ahead(&mut Line::default())).ok();
                answers
            }
        };
        Self { speaker, answers }
    }

    /// What came of it.
    ///
    /// # Errors
    /// A rank that is gone, has failed, or is elsewhere.
    pub fn wait(self) -> Result<T, ParallelError> {
        let answer = || answer_of(&self.answers);
        self.speaker.as_ref().map_or_else(answer, |speaker| speaker.still.during(answer))
    }
}

fn answer_of<T>(answers: &Receiver<Result<T, ParallelError>>) -> Result<T, ParallelError> {
    let died = || ParallelError::Transport("the thread that speaks with other ranks has died".to_owned());
    answers.recv().map_err(|_| died())?
}
