//! Recording of lists of operations (for example as CUDA graphs): launched one by one, or recorded once and replayed.

use super::{Executor, launch::run};
use crate::graph::Operation;
use gradscale_core::backend::Backend;

/// State of the recording of a list of operations.
#[derive(Debug, Default)]
pub(super) enum Recorded<R> {
    /// The list has not run yet. The first run is not recorded, because it compiles kernels and allocates memory.
    #[default]
    Cold,
    /// The list has run once; the next run is recorded.
    Warm,
    /// The list is never recorded, because the device does not record: its launches are always enqueued one by one.
    Plain,
    Ready(R),
}

/// Index of the operation of a list that failed, if it was one of them, and the error.
pub(crate) type Failed<E> = (Option<usize>, E);

impl<B: Backend> Executor<B> {
    /// Runs a list of operations: records it, replays its recording, or enqueues one operation after the other.
    pub(super) fn run_list<'o>(
        &mut self, operations: impl Iterator<Item = &'o Operation> + Clone, recorded: &mut Recorded<B::Recording>,
    ) -> Result<(), Failed<B::Error>> {
        let Self { device, table, memory, times, .. } = self;
        if times.are_taken() {
            times.run(device, table, memory, operations)?;
            if let Recorded::Cold = recorded {
                *recorded = Recorded::Warm;
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
            Recorded::Ready(recording) => device.repeat(recording),
            Recorded::Warm if self.recording => match device.record(&mut all) {
                // A recording has run nothing yet.
                Ok(Some(recording)) => device.repeat(&recording).map(|()| *recorded = Recorded::Ready(recording)),
                Ok(None) => {
                    *recorded = Recorded::Plain;
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Recorded::Plain | Recorded::Warm => all(),
            Recorded::Cold => all().map(|()| *recorded = Recorded::Warm),
        };
        ran.map_err(|error| (at, error))
    }
}
