//! Lists of operations: launched one by one, or recorded once and repeated as one.

use super::{Executor, launch::run};
use crate::graph::Operation;
use gradscale_core::backend::Backend;

/// A list that has been recorded, or how far it is from that.
#[derive(Debug, Default)]
pub(super) enum Recorded<R> {
    /// Not run yet: the first run warms up whatever a device compiles and allocates.
    #[default]
    Cold,
    /// Run once; the next run is recorded.
    Warm,
    /// The device does not record: the launches are enqueued again.
    Plain,
    Ready(R),
}

/// The operation of a list that failed, if it was one of them, and why.
pub(crate) type Failed<E> = (Option<usize>, E);

impl<B: Backend> Executor<B> {
    /// Runs a list in one go.
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
                // With a recording nothing has run yet.
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
