//! Panels of products.

use super::lane_kernels;

lane_kernels! {
    /// Rows of a panel of `width` columns, whose first `columns` are those of rows `step` apart; zeros behind them.
    fn pack_panel_rows[V, T](x: &[T], step: usize, columns: usize, width: usize, out: &mut [f32]) {
        for (r, out) in out.chunks_exact_mut(width).enumerate() {
            let (valid, padding) = out.split_at_mut(columns);
            let ((x, x_rest), (valid, valid_rest)) = (x[r * step..][..columns].as_chunks(), valid.as_chunks_mut());
            for (x, out) in x.iter().zip(valid) {
                T::load16::<V>(x).store(out);
            }
            for (x, out) in x_rest.iter().zip(valid_rest) {
                *out = x.to_scalar();
            }
            padding.fill(0.0);
        }
    }
}
