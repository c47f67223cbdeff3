//! Loop that packs rows of B into a panel.

use super::lane_kernels;

lane_kernels! {
    /// Packs rows of `columns` elements, `step` apart, into rows of `width` elements, with zeros after the last column.
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
