//! Ctrl-C and SIGTERM: the step is finished, and what there is is saved; a second one ends at once.

use crate::{Failure, output};
use gradscale::distributed::Group;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};
use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Time between two checks for a signal that must be handled at once.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct Signals {
    received: Arc<AtomicUsize>,
}

/// Signal that ends a training or a comparison before its last step.
#[derive(Clone, Copy, Debug)]
pub struct Signal(usize);

impl Signals {
    /// Installs the signal handlers, which defer signals to the end of a step.
    pub fn listen() -> Result<Self, Failure> {
        let (received, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let number = |signal: i32| usize::try_from(signal).unwrap_or_default();
        let register = |signal: i32| {
            // In this order: the first signal finds `again` unset, and sets it.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again))?;
            flag::register(signal, Arc::clone(&again))?;
            flag::register_usize(signal, Arc::clone(&received), number(signal))
        };
        for signal in [SIGINT, SIGTERM] {
            register(signal).map_err(|error| Failure::at("signals", error))?;
        }
        Ok(Self { received })
    }

    /// Prints the message immediately when a signal arrives, because a launcher may kill the process before the step
    /// ends.
    pub fn answer(&self, text: &str) {
        let (received, text) = (Arc::clone(&self.received), Failure::plain(text));
        thread::spawn(move || {
            while received.load(Ordering::Relaxed) == 0 {
                thread::sleep(POLL_INTERVAL);
            }
            output::warn(&text);
        });
    }

    /// Returns the signal that this process received, if there was one.
    pub fn received(&self) -> Option<Signal> {
        Some(Signal(self.received.load(Ordering::Relaxed))).filter(|signal| signal.0 != 0)
    }

    /// Returns the signal that any rank received; all ranks get the same one.
    pub fn received_by(&self, group: &Group) -> Result<Option<Signal>, Failure> {
        let signals = group.all_gather_u64(self.received.load(Ordering::Relaxed) as u64)?;
        let signal = signals.into_iter().max().and_then(|signal| usize::try_from(signal).ok());
        Ok(signal.filter(|&signal| signal != 0).map(Signal))
    }
}

impl Signal {
    /// Returns the exit code: 130 for Ctrl-C, 143 for SIGTERM, as shells report for a process ended by the signal.
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(u8::try_from(128 + self.0).unwrap_or(u8::MAX))
    }
}
