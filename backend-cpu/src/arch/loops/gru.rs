//! Loops over the units of one row of a GRU cell, whose definition is core's `Gru`.

use super::kernels;

kernels! {
    /// Adds the gated products of the candidate with the hidden state to those with the input, x + r·h.
    fn gru_candidate[](x: &mut [f32], reset: &[f32], h: &[f32]) {
        for ((x, &r), &h) in x.iter_mut().zip(reset).zip(h) {
            *x += r * h;
        }
    }

    /// Replaces the hidden states of a row by the next ones, h′ = n + z·(h − n).
    fn gru_state[](h: &mut [f32], update: &[f32], candidate: &[f32]) {
        for ((h, &z), &n) in h.iter_mut().zip(update).zip(candidate) {
            *h = n + z * (*h - n);
        }
    }

    /// Replaces the gates of a row, r, z, n, by the gradients of the products with the hidden state. Writes those of the
    /// products with the input, and of the hidden state `h` that the update gate keeps.
    fn gru_vjp[](gates: &mut [f32], product: &[f32], h: &[f32], dh: &[f32], dx: &mut [f32], state: &mut [f32]) {
        let hidden = state.len();
        let (reset, rest) = gates.split_at_mut(hidden);
        let (update, candidate) = rest.split_at_mut(hidden);
        let (of_reset, rest) = dx.split_at_mut(hidden);
        let (of_update, of_candidate) = rest.split_at_mut(hidden);
        let (product, h, dh) = (&product[..hidden], &h[..hidden], &dh[..hidden]);
        let (candidate, of_candidate) = (&mut candidate[..hidden], &mut of_candidate[..hidden]);
        for k in 0..hidden {
            let (r, z, n) = (reset[k], update[k], candidate[k]);
            let d = dh[k] * (1.0 - z) * (1.0 - n * n);
            of_reset[k] = d * product[k] * (r * (1.0 - r));
            of_update[k] = dh[k] * (h[k] - n) * (z * (1.0 - z));
            of_candidate[k] = d;
            reset[k] = of_reset[k];
            update[k] = of_update[k];
            candidate[k] = d * r;
            state[k] = dh[k] * z;
        }
    }
}
