//! Stores in blocks beside core: values and rows of a gradient, an input and a weight whose f32 values are known.

use crate::stores::{Known, SIZES, spread};
use gradscale::{
    Cause, Method, forward_sites,
    gradscale_core::{
        amp::{AmpPolicy, Level},
        block_format::BlockFormat,
        stats::{Counts, Detail, Stats},
        store_format::StoreFormat,
    },
};

/// Returns values as blocks of rows store them, and the counters of their row.
fn stored(format: BlockFormat, columns: usize, values: &[f32]) -> (Vec<f32>, Counts) {
    let mut row = Stats::new(format.format().convention(), 0, Detail::Counts);
    let mut rounded = values.to_vec();
    for (values, rounded) in values.chunks(columns).zip(rounded.chunks_mut(columns)) {
        for block in values.chunks(format.size() as usize) {
            let exponent = format.exponent(block);
            row.observe(&block.iter().map(|&u| format.scaled(exponent, u)).collect::<Vec<_>>());
        }
        format.round_row(rounded);
    }
    (rounded, *row.counts())
}

#[test]
fn values_are_stored_and_counted_in_blocks_as_core_does() {
    let [from, to, batch] = SIZES;
    for (gradient_format, format) in [(StoreFormat::E5m2, StoreFormat::E4m3), (StoreFormat::E4m3, StoreFormat::E5m2)] {
        for level in [Level::O1, Level::O2] {
            let method: Method =
                format!("block:grad={gradient_format},act={format},weight={format},size=16").parse().expect("a method");
            let mut known = Known::new(&method.with_amp(AmpPolicy::new(level)));
            let [of_gradient, of_forward] =
                [gradient_format, format].map(|format| BlockFormat::new(format, 16).expect("a size"));
            for step in 0..3i32 {
                // Rows of a batch differ by more than any format of 8 bits has, beyond the range of halves.
                let scale = |row: i32| 2f32.powi(-8 * row - 30 * step);
                let rows = |columns: usize| -> Vec<f32> {
                    (0..).take(batch).flat_map(|row| spread(columns, scale(row))).collect()
                };
                let (x, gradient) = (rows(from), rows(to));
                let weights = known.trainer.parameter("net.weight").expect("a weight").data;
                let (found, alpha, outcome) = known.step(&x, &gradient);
                assert_eq!((alpha, outcome.skipped, outcome.repeated.len()), (0, None, 0));
                let (expected, counts) = stored(of_gradient, to, &gradient);
                let site = known.trainer.sites().next().expect("a site");
                // O2 rounds every input in the format of activations first, also the one that is a gradient here.
                if level == Level::O1 {
                    assert_eq!(found, expected, "{gradient_format}, step {step}");
                    assert_eq!(*site.row.counts(), counts, "{gradient_format}, step {step}");
                }
                assert_eq!((site.row.convention(), site.log2_amax), (gradient_format.convention(), None));
                assert!(counts.flushed < counts.count / 4, "each row has scales of its own: {counts:?}");
                for (suffix, columns, values) in [("0/cast/forward", from, &x), ("net.weight/weight", from, &weights)] {
                    let site = forward_sites(&known.trainer).find(|site| site.name.ends_with(suffix)).expect("a site");
                    assert_eq!(*site.row.counts(), stored(of_forward, columns, values).1, "{suffix}, {level:?}");
                }
            }
        }
    }
}

#[test]
fn a_batch_that_is_not_finite_is_skipped_and_changes_nothing() {
    for format in ["e5m2", "e4m3"] {
        let mut known = Known::new(&format!("block:format={format}").parse().expect("a method"));
        let [from, to, batch] = SIZES;
        let (x, mut gradient) = (spread(batch * from, 1.0), spread(batch * to, 1.0));
        let before = known.trainer.parameter("net.weight").expect("a weight").data;
        gradient[5] = f32::INFINITY;
        let (_, _, outcome) = known.step(&x, &gradient);
        let skipped = outcome.skipped.expect("not finite");
        assert_eq!((skipped.cause, outcome.repeated.len()), (Cause::NotFinite, 0));
        assert_eq!(known.trainer.parameter("net.weight").expect("a weight").data, before);
    }
}
