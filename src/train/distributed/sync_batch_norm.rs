//! Synchronised batch norm (`SyncBatchNorm`): batch statistics of all ranks, inside a pass.

use crate::{
    Error,
    distributed::{LocalStats, combine_moments, gather_stats, negated_means, with_unbiased_variance},
    graph::{BufferId, StatsSync, SyncPayload, ValueCount},
    train::{Trainer, distributed::MicroBatch},
};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, Data},
};

impl<B: Backend> Trainer<B> {
    /// Combines the batch statistics of all ranks at a layer. Outside a step of micro-batches it takes those of this rank.
    pub(in crate::train) async fn sync_batch_stats(
        &mut self, program: usize, sync: StatsSync,
    ) -> Result<(), Error<B::Error>> {
        let StatsSync { node, channels, count, payload, .. } = sync;
        let count = match count {
            ValueCount::Static(count) => f64::from(count),
            ValueCount::OnDevice(buf) => f64::from(self.read_scalar(buf).await?),
        };
        let values = match payload {
            SyncPayload::Moments { biased, .. } => self.read_channels(biased, 2 * channels).await?,
            SyncPayload::Sums([first, second]) => {
                [self.read_channels(first, channels).await?, self.read_channels(second, channels).await?].concat()
            }
        };
        let local = LocalStats { count, values };
        let stats = match self.ranks.micro_batch {
            MicroBatch::Single => vec![local],
            MicroBatch::First | MicroBatch::Subsequent => {
                gather_stats(&self.ranks.group, &self.exec.program(program).trace.nodes[node].name, &local)?
            }
        };
        match payload {
            SyncPayload::Moments { biased, unbiased } => {
                let both = combine_moments(&stats);
                self.write_channels(biased, &both)?;
                unbiased
                    .map_or(Ok(()), |unbiased| self.write_channels(unbiased, &with_unbiased_variance(&stats, &both)))
            }
            SyncPayload::Sums([first, second]) => {
                let means = negated_means(&stats);
                self.write_channels(first, &means[..channels])?;
                self.write_channels(second, &means[channels..])
            }
        }
    }

    async fn read_channels(&self, buf: BufferId, len: usize) -> Result<Vec<f32>, Error<B::Error>> {
        self.exec.read(buf, Precision::Single, len).await.map_err(Error::Device)
    }

    fn write_channels(&mut self, buf: BufferId, values: &[f32]) -> Result<(), Error<B::Error>> {
        self.exec.write(buf, Data::F32(values)).map_err(Error::Device)
    }
}
