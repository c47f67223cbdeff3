//! Trainer in a group of ranks.

use super::{super::DistributedOptions, steps::MicroBatching};
use crate::Failure;
use gradscale::{Trainer, TrainerOptions, distributed::ReduceTimings, gradscale_core::backend::Backend};

/// Returns the trainer connected to its group of ranks, and the times of the reduce modes if none was chosen.
pub(super) fn joined<B: Backend<Error: 'static>>(
    trainer: Trainer<B>, cut: Option<MicroBatching>, together: DistributedOptions,
) -> Result<(Trainer<B>, Option<ReduceTimings>), Failure> {
    let DistributedOptions { group, exchange, overlap, sharded, batch_statistics } = together;
    let mut trainer =
        trainer.with_options(TrainerOptions::new().with_batch_norm_scope(batch_statistics).with_overlap(overlap));
    let Some(MicroBatching { parts, .. }) = cut else { return Ok((trainer, None)) };
    if sharded {
        trainer = trainer.with_options(TrainerOptions::new().with_sharded_optimizer());
    }
    if group.size() > 1 {
        trainer = trainer.join_group(group)?;
    }
    let measured = if exchange.is_none() { Some(gradscale::measure_reduce_modes(&mut trainer, parts)?) } else { None };
    let exchange = exchange.or(measured.map(|measured| measured.fastest_mode())).unwrap_or_default();
    Ok((trainer.with_options(TrainerOptions::new().with_reduce_mode(exchange)), measured))
}
