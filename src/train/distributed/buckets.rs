//! Gradients that travel while the backward pass goes on.
//!
//! The last part of a rank stops where the gradients of a bucket are there, adds them to those of its other parts, and
//! sends them ahead: at their exponents, though only the end of the step says whether these fit and whether there is a step
//! at all. If not, they are thrown away. All that is sent ahead is sent before rows are compared, in the order of the
//! buckets, on every rank; what cannot be, since it has no exponent yet, is sent behind.

use crate::{
    Error,
    distributed::{BatchStatistics, Exchange, ParallelError, Route, Sums},
    graph::{Joint, Purpose},
    train::{
        Gradients, Trainer,
        distributed::{
            Turn,
            grad_reduce::{Added, Parcel, Travels},
        },
    },
};
use gradscale_core::backend::Backend;
use pollster::block_on;

/// The parts of a step, on this rank.
#[derive(Debug, Default)]
pub(in crate::train) struct Parts {
    /// Of all ranks.
    pub count: u32,
    /// Whether this rank's last is in progress.
    pub last: bool,
    /// Their gradients, once there are some.
    pub added: Option<Added>,
}

impl<B: Backend> Trainer<B> {
    /// What of a program is for other ranks.
    pub(in crate::train) fn joint(&self) -> Joint {
        if self.ranks.group.size() == 1 {
            return Joint::default();
        }
        let weights = self.parameters.weights().map(|id| self.parameters.len(id)).sum();
        let together = match self.ranks.route {
            Route::Host(_) => self.ranks.overlap.together(weights),
            Route::Devices(_) => None,
        };
        Joint { world: self.settings.batch_statistics == BatchStatistics::World, together }
    }

    /// What was sent ahead is the gradients of one pass.
    pub(in crate::train) fn check_one_pass(&self, program: usize) -> Result<(), Error<B::Error>> {
        let Some(Added::Host(parcels)) = &self.ranks.parts.added else { return Ok(()) };
        let trains = matches!(self.exec.program(program).purpose, Purpose::Train { .. });
        if trains && parcels.iter().any(|parcel| matches!(parcel.travels, Travels::Ahead(_))) {
            return Err(ParallelError::Part("is one pass: cut the step into more parts").into());
        }
        Ok(())
    }

    /// Sends a bucket's gradients, which are there, if those of no other part are to be added.
    pub(in crate::train) async fn send_ahead(&mut self, program: usize, bucket: usize) -> Result<(), Error<B::Error>> {
        if self.ranks.turn == Turn::Whole || !self.ranks.parts.last {
            return Ok(());
        }
        let mut added = match self.ranks.parts.added.take() {
            Some(added) => added,
            None => self.begin_sums(program)?,
        };
        if let Added::Host(parcels) = &mut added {
            // Parts of other shapes may come to their gradients in another order: then all are sent in the end.
            let buckets = &self.exec.program(program).buckets;
            let alike = parcels.iter().map(|parcel| &parcel.weights).eq(buckets.iter().map(|bucket| &bucket.weights));
            if alike && self.may_travel(&parcels[bucket].weights) {
                self.add_parcel(&mut parcels[bucket]).await?;
                self.begin_mean(&mut parcels[bucket]);
            }
        }
        self.ranks.parts.added = Some(added);
        Ok(())
    }

    /// Sends what can be sent ahead and was not yet.
    pub(in crate::train) fn send_rest(&self, added: &mut Added) {
        let Added::Host(parcels) = added else { return };
        if self.joint().together.is_some() {
            let rest = parcels.iter_mut().filter(|parcel| self.may_travel(&parcel.weights));
            rest.for_each(|parcel| self.begin_mean(parcel));
        }
    }

    /// Adds the gradients of a part that has run, but for those that have been sent.
    pub(in crate::train) fn add_gradients(&mut self, gradients: &Gradients) -> Result<(), Error<B::Error>> {
        let mut added = match self.ranks.parts.added.take() {
            Some(added) => added,
            None => self.begin_sums(gradients.program)?,
        };
        match &mut added {
            Added::Host(parcels) => parcels.iter_mut().try_for_each(|parcel| block_on(self.add_parcel(parcel)))?,
            Added::Devices => self.add_on_devices(&gradients.contributes)?,
        }
        self.ranks.parts.added = Some(added);
        Ok(())
    }

    /// Whether these gradients have exponents to travel at, where they need some: on all ranks, or on none.
    fn may_travel(&self, weights: &[usize]) -> bool {
        self.ranks.exchange == Exchange::Fast || weights.iter().all(|&id| self.ranks.exponents[id].is_some())
    }

    fn begin_mean(&self, parcel: &mut Parcel) {
        if let Travels::Behind(sums) = &mut parcel.travels {
            let weights: Vec<u8> = parcel.weights.iter().flat_map(|id| id.to_le_bytes()).collect();
            let sums = std::mem::replace(sums, Sums::none());
            let pending = self.ranks.group.begin_mean(crc32c::crc32c(&weights), sums, self.ranks.parts.count);
            parcel.travels = Travels::Ahead(pending);
        }
    }
}
