//! Communication channel to the other ranks, and the thread that owns it.
//!
//! One thread of a rank issues all collectives, in the order in which they are submitted. Ranks that submit the same
//! collectives therefore run them in the same order, even while the submitting thread continues with other work.

use super::{Communicator, DistributedError, MessageTag, Traffic};
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

/// State of the connection to the other ranks of a training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Health {
    #[default]
    Ok,
    /// One rank cannot continue, and all ranks have received its reason.
    PeerFailed,
    /// Some ranks cannot be reached, or run another program.
    Disconnected,
}

/// Communicator of the communication thread, with its traffic counters and its state.
#[derive(Default)]
pub(super) struct CommChannel {
    /// Connection to the other ranks; `None` for a single rank.
    pub communicator: Option<Box<dyn Communicator>>,
    pub rank: usize,
    /// Number of ranks of the training besides this one.
    pub other_ranks: usize,
    pub traffic: Traffic,
    pub health: Health,
    /// Indices of the ranks that were found to be unresponsive.
    pub unresponsive_ranks: Vec<usize>,
    /// Error of a collective that has not been awaited. While it is set, no further collective is issued.
    pub deferred_error: Option<DistributedError>,
    pub wait_timer: WaitTimer,
}

/// Start of the current blocking wait, if there is one, for the time of exposed communication.
#[derive(Clone, Default)]
pub(super) struct WaitTimer(Arc<Mutex<Option<Instant>>>);

impl WaitTimer {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `wait` as a blocking wait, whose time counts as exposed communication, and returns its result.
    fn time<T>(&self, wait: impl FnOnce() -> T) -> T {
        *self.lock() = Some(Instant::now());
        let result = wait();
        *self.lock() = None;
        result
    }
}

impl CommChannel {
    /// Records that a collective failed in transport, and the ranks that have not answered.
    fn record_disconnect(&mut self, error: &DistributedError) {
        self.health = Health::Disconnected;
        if let DistributedError::Timeout { ranks, .. } = error {
            self.unresponsive_ranks.clone_from(ranks);
        }
    }

    /// Returns the messages of all ranks, in the order of the ranks, after comparing their tags.
    pub fn all_gather(&mut self, tag: MessageTag, local: &[u8]) -> Result<Vec<Vec<u8>>, DistributedError> {
        let Some(communicator) = &mut self.communicator else { return Ok(vec![local.to_vec()]) };
        let start = Instant::now();
        let mut message = Vec::with_capacity(local.len() + 1);
        message.push(tag as u8);
        message.extend_from_slice(local);
        let messages = communicator.all_gather(&message);
        let messages = messages.inspect_err(|error| self.record_disconnect(error))?;
        self.traffic.sent_bytes += (message.len() * self.other_ranks) as u64;
        let gathered: u64 = messages.iter().map(|message| message.len() as u64).sum();
        self.traffic.received_bytes += gathered - message.len() as u64;
        self.record_time(start);
        let tag_of = |message: &[u8]| message.first().copied();
        let failed = messages.iter().position(|message| tag_of(message) == Some(MessageTag::Failed as u8));
        if let Some(rank) = failed {
            self.health = Health::PeerFailed;
            let reason = String::from_utf8_lossy(&messages[rank][1..]).into_owned();
            return Err(DistributedError::RankFailed { rank, reason });
        }
        if let Some(rank) = messages.iter().position(|message| tag_of(message) != Some(tag as u8)) {
            self.health = Health::Disconnected;
            return Err(DistributedError::CollectiveMismatch(rank));
        }
        Ok(messages.into_iter().map(|mut message| message.split_off(1)).collect())
    }

    /// Sums the values of all ranks in place. Call it only directly after a gather of all ranks, because this collective
    /// has no tag. The counted traffic is the minimum for such a sum, because the transport chooses its own algorithm.
    pub fn all_reduce(&mut self, values: &mut Vec<f32>) -> Result<(), DistributedError> {
        let Some(communicator) = &mut self.communicator else { return Ok(()) };
        let start = Instant::now();
        let summed = communicator.all_reduce(values);
        summed.inspect_err(|error| self.record_disconnect(error))?;
        let bytes = (2 * size_of::<f32>() * values.len() * self.other_ranks / (self.other_ranks + 1)) as u64;
        self.traffic.sent_bytes += bytes;
        self.traffic.received_bytes += bytes;
        self.record_time(start);
        Ok(())
    }

    /// Sends each rank its message. Call it only directly after a gather of all ranks, because this collective has no tag.
    pub fn all_to_all(&mut self, messages: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, DistributedError> {
        let Some(communicator) = &mut self.communicator else { return Ok(messages) };
        let start = Instant::now();
        let received = communicator.all_to_all(&messages);
        let received = received.inspect_err(|error| self.record_disconnect(error))?;
        let remote_bytes = |messages: &[Vec<u8>]| {
            let remote = messages.iter().enumerate().filter(|(rank, _)| *rank != self.rank);
            remote.map(|(_, message)| message.len() as u64).sum::<u64>()
        };
        let sent_bytes = remote_bytes(&messages);
        let received_bytes = remote_bytes(&received);
        self.traffic.sent_bytes += sent_bytes;
        self.traffic.received_bytes += received_bytes;
        self.record_time(start);
        Ok(received)
    }

    /// Adds the time of a collective since `start`, and the share of it during which a caller was blocked.
    fn record_time(&mut self, start: Instant) {
        let end = Instant::now();
        self.traffic.comm_time += end - start;
        if let Some(wait_start) = *self.wait_timer.lock() {
            self.traffic.exposed_time += end.saturating_duration_since(wait_start.max(start));
        }
    }

    /// Adds traffic between devices since `start`, `bytes` in each direction. The channel was idle meanwhile.
    pub fn add_device_traffic(&mut self, bytes: u64, start: Instant) {
        self.traffic.sent_bytes += bytes;
        self.traffic.received_bytes += bytes;
        self.traffic.comm_time += start.elapsed();
        self.traffic.exposed_time += start.elapsed();
    }

    /// Runs a collective whose caller waits. A deferred error is returned instead of its result.
    fn run_awaited<T>(
        &mut self, collective: impl FnOnce(&mut Self) -> Result<T, DistributedError>,
    ) -> Result<T, DistributedError> {
        match self.deferred_error.take() {
            Some(error) => Err(error),
            None => collective(self),
        }
    }

    /// Runs a collective whose result is read later, unless one before it has failed: the other ranks do not join it then.
    fn run_deferred<T>(
        &mut self, collective: impl FnOnce(&mut Self) -> Result<T, DistributedError>,
    ) -> Result<T, DistributedError> {
        match &self.deferred_error {
            Some(error) => Err(error.clone()),
            None => collective(self).inspect_err(|error| self.deferred_error = Some(error.clone())),
        }
    }
}

type Job = Box<dyn FnOnce(&mut CommChannel) + Send>;

/// Handle of the communication thread, which owns the channel to the other ranks.
pub(super) struct CommThread {
    /// Queue of collectives; closed when the handle is dropped, which ends the thread.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    wait_timer: WaitTimer,
}

impl CommThread {
    pub fn new(mut channel_state: CommChannel) -> Self {
        let (jobs, submitted) = channel::<Job>();
        let wait_timer = channel_state.wait_timer.clone();
        let thread = thread::spawn(move || submitted.iter().for_each(|job| job(&mut channel_state)));
        Self { jobs: Some(jobs), thread: Some(thread), wait_timer }
    }

    /// Runs `inspect` on the channel after all submitted collectives. `None` if the thread has died.
    pub fn inspect<T: Send + 'static>(
        &self, inspect: impl FnOnce(&mut CommChannel) -> T + Send + 'static,
    ) -> Option<T> {
        self.submit(inspect).recv().ok()
    }

    /// Runs a collective on the communication thread and waits for its result.
    pub fn run_blocking<T: Send + 'static>(
        &self, collective: impl FnOnce(&mut CommChannel) -> Result<T, DistributedError> + Send + 'static,
    ) -> Result<T, DistributedError> {
        self.wait_timer.time(|| receive_reply(&self.submit(|channel| channel.run_awaited(collective))))
    }

    fn submit<T: Send + 'static>(&self, job: impl FnOnce(&mut CommChannel) -> T + Send + 'static) -> Receiver<T> {
        let (reply, replies) = channel();
        let job = move |channel: &mut CommChannel| {
            // The receiver may have been dropped.
            reply.send(job(channel)).ok();
        };
        if let Some(jobs) = &self.jobs {
            jobs.send(Box::new(job)).ok();
        }
        replies
    }

    /// Returns bytes and time of this rank's communication so far.
    pub fn traffic(&self) -> Traffic {
        self.inspect(|channel| channel.traffic).unwrap_or_default()
    }
}

impl Drop for CommThread {
    fn drop(&mut self) {
        self.jobs = None;
        self.thread.take().map(JoinHandle::join);
    }
}

/// Handle of a collective that was submitted and has not been awaited (`Work` in `torch.distributed`).
pub(crate) struct PendingCollective<T> {
    /// Communication thread that runs the collective; `None` for a single rank, where collectives complete at once.
    thread: Option<Arc<CommThread>>,
    replies: Receiver<Result<T, DistributedError>>,
}

impl<T> fmt::Debug for PendingCollective<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCollective").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> PendingCollective<T> {
    /// Submits a collective to the communication thread, where it runs after all that were submitted before.
    pub(super) fn start(
        thread: Option<Arc<CommThread>>,
        collective: impl FnOnce(&mut CommChannel) -> Result<T, DistributedError> + Send + 'static,
    ) -> Self {
        let job = |channel: &mut CommChannel| channel.run_deferred(collective);
        let replies = match &thread {
            Some(thread) => thread.submit(job),
            None => {
                let (reply, replies) = channel();
                reply.send(job(&mut CommChannel::default())).ok();
                replies
            }
        };
        Self { thread, replies }
    }

    /// Waits for the collective and returns its result.
    ///
    /// # Errors
    /// A rank that is lost, has failed, or runs another collective.
    pub fn wait(self) -> Result<T, DistributedError> {
        let receive = || receive_reply(&self.replies);
        self.thread.as_ref().map_or_else(receive, |thread| thread.wait_timer.time(receive))
    }
}

fn receive_reply<T>(replies: &Receiver<Result<T, DistributedError>>) -> Result<T, DistributedError> {
    let died = || DistributedError::Transport("the communication thread has died".to_owned());
    replies.recv().map_err(|_| died())?
}
