//! Panels of products.

use super::lane_kernels;

lane_kernels! {
    /// Rows of a panel of `width` columns, whose first `columns` are those of rows `step` apart; zeros behind them.
    fn pack[V, T](x: &[T], step: usize, columns: usize, width: usize, out: &mut [f32]) {
        for (r, out) in out.chunks_exact_mut(width).enumerate() {
            let (live, dead) = out.split_at_mut(columns);
            let ((x, x_rest), (live, live_rest)) = (x[r * step..][..columns].as_chunks(), live.as_chunks_mut());
            for (x, out) in x.iter().zip(live) {
                T::lanes::<V>(x).store(out);
            }
            for (x, out) in x_rest.iter().zip(live_rest) {
                *out = x.number();
            }
            dead.fill(0.0);
        }
    }
}
