//! Meetings of ranks inside a pass: batch norm over the batches of all of them.

use crate::{
    Error,
    distributed::{Share, less_means, moments, shares, unbiased},
    graph::{Buf, Count, Known, Meet},
    train::{Trainer, distributed::Turn},
};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, Data},
};

impl<B: Backend> Trainer<B> {
    /// Puts together what all ranks know of their batches at a layer, or, outside of a step in parts, takes what this one
    /// knows.
    pub(in crate::train) async fn meet(&mut self, program: usize, meet: Meet) -> Result<(), Error<B::Error>> {
        let Meet { node, channels, count, known, .. } = meet;
        let count = match count {
            Count::Of(count) => f64::from(count),
            Count::At(buf) => f64::from(self.read_one(buf).await?),
        };
        let values = match known {
            Known::Moments { biased, .. } => self.channels(biased, 2 * channels).await?,
            Known::Sums([first, second]) => {
                [self.channels(first, channels).await?, self.channels(second, channels).await?].concat()
            }
        };
        let mine = Share { count, values };
        let all = match self.ranks.turn {
            Turn::Whole => vec![mine],
            Turn::First | Turn::Later => {
                shares(&self.ranks.group, &self.exec.program(program).trace.nodes[node].name, &mine)?
            }
        };
        match known {
            Known::Moments { biased, unbiased: place } => {
                let both = moments(&all);
                self.give(biased, &both)?;
                place.map_or(Ok(()), |place| self.give(place, &unbiased(&all, &both)))
            }
            Known::Sums([first, second]) => {
                let less = less_means(&all);
                self.give(first, &less[..channels])?;
                self.give(second, &less[channels..])
            }
        }
    }

    async fn channels(&self, buf: Buf, len: usize) -> Result<Vec<f32>, Error<B::Error>> {
        self.exec.read(buf, Precision::Single, len).await.map_err(Error::Device)
    }

    fn give(&mut self, buf: Buf, values: &[f32]) -> Result<(), Error<B::Error>> {
        self.exec.write(buf, Data::F32(values)).map_err(Error::Device)
    }
}
