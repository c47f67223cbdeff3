//! Recording of lists of operations (for example as CUDA graphs): launched one by one, or recorded once and replayed.

use super::{Executor, launch::run};
use crate::graph::Operation;
use gradscale_core::backend::Backend;

/// State of the recording of a list of operations.
#[derive(Debug, Default)]
pub(super) enum Capture<R> {
    /// The list has not run yet. The first run is not recorded, because it compiles kernels and allocates memory.
    #[default]
    NotRun,
    /// The list has run once; the next run is recorded.
    WarmedUp,
    /// The list is never recorded, because the device does not record: its launches are always enqueued one by one.
    Unsupported,
    Captured(R),
}

impl<R> Capture<R> {
    /// Returns true if there is a recording.
    pub const fn is_captured(&self) -> bool {
        matches!(self, Self::Captured(_))
    }
}

/// Index of the operation of a list that failed, if it was one of them, and the error.
pub(crate) type LaunchFailure<E> = (Option<usize>, E);

impl<B: Backend> Executor<B> {
    /// Runs a list of operations: records it, replays its recording, or enqueues one operation after the other.
    pub(super) fn run_list<'o>(
        &mut self, operations: impl Iterator<Item = &'o Operation> + Clone, recorded: &mut Capture<B::Recording>,
    ) -> Result<(), LaunchFailure<B::Error>> {
        let Self { device, table, memory, times, .. } = self;
        if times.are_taken() {
            times.run(device, table, memory, operations)?;
            if let Capture::NotRun = recorded {
                *recorded = Capture::WarmedUp;
            }
            return Ok(());
        }
        let mut at = None;
        let mut all = || {
            operations.clone().enumerate().try_for_each(|(i, operation)| {
                run(device, table, memory, operation, None).inspect_err(|_| at = Some(i))
            })
        };
        let ran = match recorded {
            Capture::Captured(recording) => device.replay(recording),
            Capture::WarmedUp if self.recording => match device.record(&mut all) {
                // A recording has run nothing yet.
                Ok(Some(recording)) => device.replay(&recording).map(|()| *recorded = Capture::Captured(recording)),
                Ok(None) => {
                    *recorded = Capture::Unsupported;
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Capture::Unsupported | Capture::WarmedUp => all(),
            Capture::NotRun => all().map(|()| *recorded = Capture::WarmedUp),
        };
        ran.map_err(|error| (at, error))
    }
}
