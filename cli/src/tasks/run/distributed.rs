//! A trainer among ranks.

use super::{super::DistributedOptions, steps::MicroBatching};
use crate::Failure;
use gradscale::{Trainer, core::backend::Backend, distributed::Measured};

/// A trainer that trains with others, in parts; what the ways of gradients take, if nobody has said which one to go.
pub(super) fn joined<B: Backend<Error: 'static>>(
    trainer: Trainer<B>, cut: Option<MicroBatching>, together: DistributedOptions,
) -> Result<(Trainer<B>, Option<Measured>), Failure> {
    let DistributedOptions { group, exchange, overlap, sharded, batch_statistics } = together;
    let mut trainer = trainer.with_batch_statistics(batch_statistics).with_overlap(overlap);
    let Some(MicroBatching { parts, .. }) = cut else { return Ok((trainer, None)) };
    if sharded {
        trainer = trainer.with_sharded_optimizer();
    }
    if group.size() > 1 {
        trainer = trainer.distributed(group)?;
    }
    let measured = if exchange.is_none() { Some(trainer.measure_exchange(parts)?) } else { None };
    let exchange = exchange.or(measured.map(|measured| measured.fastest())).unwrap_or_default();
    Ok((trainer.with_exchange(exchange), measured))
}
