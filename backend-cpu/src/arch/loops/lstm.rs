//! Loops over the units of one row of an LSTM cell, whose definition is core's `Lstm`.

use super::kernels;

kernels! {
    /// Replaces the cell states of a row by the next ones, c′ = f·c + i·g.
    fn lstm_state[](c: &mut [f32], input: &[f32], forget: &[f32], candidate: &[f32]) {
        for (((c, &i), &f), &g) in c.iter_mut().zip(input).zip(forget).zip(candidate) {
            *c = f * *c + i * g;
        }
    }

    /// Replaces the gates of a row, i, f, g, o, by the gradients of their sums, and the gradients of c′ by those of c.
    fn lstm_vjp[](gates: &mut [f32], c: &[f32], tanh: &[f32], dh: &[f32], dc: &mut [f32]) {
        let hidden = dc.len();
        let (input_and_forget, rest) = gates.split_at_mut(2 * hidden);
        let (input, forget) = input_and_forget.split_at_mut(hidden);
        let (candidate, output) = rest.split_at_mut(hidden);
        let (c, tanh, dh) = (&c[..hidden], &tanh[..hidden], &dh[..hidden]);
        let (forget, candidate, output) = (&mut forget[..hidden], &mut candidate[..hidden], &mut output[..hidden]);
        for k in 0..hidden {
            let (i, f, g, o) = (input[k], forget[k], candidate[k], output[k]);
            let of_state = dc[k] + dh[k] * o * (1.0 - tanh[k] * tanh[k]);
            input[k] = of_state * g * (i * (1.0 - i));
            forget[k] = of_state * c[k] * (f * (1.0 - f));
            candidate[k] = of_state * i * (1.0 - g * g);
            output[k] = dh[k] * tanh[k] * (o * (1.0 - o));
            dc[k] = of_state * f;
        }
    }
}
