//! The oracle, continued: sequences, images of another size, losses between 0 and 1.

use crate::f64::{Tensor, len};

/// Numbers of a transposed convolution: `extra` rows and columns at the end.
#[derive(Clone, Copy, Debug)]
pub struct Transposed {
    pub stride: usize,
    pub pad: usize,
    pub extra: usize,
    pub dilation: usize,
    pub groups: usize,
}

/// Each x lays its weights, `[in, kh, kw, out/groups]`, over the result.
pub fn conv_transpose(x: &Tensor, w: &Tensor, b: Option<&Tensor>, p: Transposed) -> Tensor {
    let ([n, h, wide, c], [_, kh, kw, part]) = (x.shape, w.shape);
    let size = |size: usize, k: usize| (size - 1) * p.stride + (k - 1) * p.dilation + 1 + p.extra - 2 * p.pad;
    let shape = [n, size(h, kh), size(wide, kw), part * p.groups];
    let mut y = Tensor::fill(shape, |[.., o]| b.map_or(0.0, |b| b.data[o]));
    for i in 0..len(x.shape) {
        let place = [i / (h * wide * c), i / (wide * c) % h, i / c % wide, i % c];
        let group = place[3] / (c / p.groups);
        for (u, v, o) in (0..kh).flat_map(|u| (0..kw).flat_map(move |v| (0..part).map(move |o| (u, v, o)))) {
            let at = [place[1] * p.stride + u * p.dilation, place[2] * p.stride + v * p.dilation];
            if at[0] < p.pad || at[1] < p.pad || at[0] - p.pad >= shape[1] || at[1] - p.pad >= shape[2] {
                continue;
            }
            let to = ((place[0] * shape[1] + at[0] - p.pad) * shape[2] + at[1] - p.pad) * shape[3];
            y.data[to + group * part + o] += x.data[i] * w.at([place[3], u, v, o]);
        }
    }
    y
}

pub fn matmul(a: &Tensor, b: &Tensor, transposed: bool) -> Tensor {
    let ([n, h, m, k], [_, _, rows, columns]) = (a.shape, b.shape);
    let p = if transposed { rows } else { columns };
    Tensor::fill([n, h, m, p], |[i, j, row, column]| {
        let b = |l: usize| b.at(if transposed { [i, j, column, l] } else { [i, j, l, column] });
        (0..k).map(|l| a.at([i, j, row, l]) * b(l)).sum()
    })
}

/// Over channels; causal: of the first w + 1.
pub fn softmax(x: &Tensor, causal: bool) -> Tensor {
    let channels = x.shape[3];
    Tensor::fill(x.shape, |[n, h, w, c]| {
        let seen = if causal { (w + 1).min(channels) } else { channels };
        let sum: f64 = (0..seen).map(|k| x.at([n, h, w, k]).exp()).sum();
        if c < seen { x.at([n, h, w, c]).exp() / sum } else { 0.0 }
    })
}

/// Over the channels where the mask is above 0; 0 in rows without one.
pub fn softmax_where(x: &Tensor, mask: &Tensor) -> Tensor {
    let powers = x.binary(mask, |x, mask| if mask > 0.0 { x.exp() } else { 0.0 });
    let sums = powers.along(3, false);
    powers.binary(&sums, |power, sum| if sum == 0.0 { 0.0 } else { power / sum })
}

pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Tensor {
    let scale = (q.shape[3] as f64).sqrt();
    matmul(&softmax(&matmul(&q.map(|q| q / scale), k, true), causal), v, false)
}

pub fn permute(x: &Tensor, order: [usize; 4]) -> Tensor {
    Tensor::fill(order.map(|axis| x.shape[axis]), |place| {
        let mut from = [0; 4];
        order.iter().zip(place).for_each(|(&axis, at)| from[axis] = at);
        x.at(from)
    })
}

/// Rows of a table, one after the other; zeros beyond it.
pub fn rows(table: &Tensor, indices: &[u32], shape: [usize; 4]) -> Tensor {
    let [rows, .., width] = table.shape;
    let mut y = Tensor::fill(shape, |_| 0.0);
    for (to, &index) in y.data.chunks_mut(width).zip(indices) {
        if (index as usize) < rows {
            to.copy_from_slice(&table.data[index as usize * width..][..width]);
        }
    }
    y
}

/// Places along an axis, in the order of the indices.
pub fn gather(x: &Tensor, axis: usize, indices: &[u32]) -> Tensor {
    let mut shape = x.shape;
    shape[axis] = indices.len();
    Tensor::fill(shape, |mut place| {
        place[axis] = indices[place[axis]] as usize;
        x.at(place)
    })
}

/// The k largest values along an axis, in their order.
pub fn largest(x: &Tensor, axis: usize, k: usize) -> Tensor {
    let mut shape = x.shape;
    shape[axis] = k;
    Tensor::fill(shape, |place| {
        let one = |i: usize| {
            let mut at = place;
            at[axis] = i;
            x.at(at)
        };
        let mut all: Vec<f64> = (0..x.shape[axis]).map(one).collect();
        all.sort_by(|a, b| b.total_cmp(a));
        all[place[axis]]
    })
}

pub fn cumsum(x: &Tensor, axis: usize) -> Tensor {
    Tensor::fill(x.shape, |place| {
        let one = |i: usize| {
            let mut at = place;
            at[axis] = i;
            x.at(at)
        };
        (0..=place[axis]).map(one).sum()
    })
}

pub fn one_hot(labels: &[u8], classes: usize) -> Tensor {
    Tensor::fill([labels.len(), 1, 1, classes], |[i, _, _, c]| f64::from(u8::from(usize::from(labels[i]) == c)))
}

pub fn nearest(x: &Tensor, [down, right]: [usize; 2]) -> Tensor {
    let [n, h, w, c] = x.shape;
    Tensor::fill([n, h * down, w * right, c], |[i, y, z, k]| x.at([i, y / down, z / right, k]))
}

pub fn bilinear(x: &Tensor, size: [usize; 2], align_corners: bool) -> Tensor {
    let [n, h, w, c] = x.shape;
    let place = |at: usize, from: usize, to: usize| {
        let (step, last) = (from as f64 / to as f64, (from - 1) as f64);
        let place = match align_corners {
            true if to == 1 => 0.0,
            true => at as f64 * last / (to - 1) as f64,
            false => at as f64 * step + (step - 1.0) / 2.0,
        };
        place.clamp(0.0, last)
    };
    Tensor::fill([n, size[0], size[1], c], |[i, y, z, k]| {
        let (row, column) = (place(y, h, size[0]), place(z, w, size[1]));
        let mut sum = 0.0;
        // A hat of width 2 around the place.
        for (u, v) in (0..h).flat_map(|u| (0..w).map(move |v| (u, v))) {
            let share = (1.0 - (row - u as f64).abs()).max(0.0) * (1.0 - (column - v as f64).abs()).max(0.0);
            sum += share * x.at([i, u, v, k]);
        }
        sum
    })
}

/// Windows of an adaptive pooling, each folded by `f`.
pub fn adaptive(x: &Tensor, size: [usize; 2], f: impl Fn(&[f64]) -> f64) -> Tensor {
    let [n, h, w, c] = x.shape;
    let window = |at: usize, from: usize, to: usize| {
        let start = (at as f64 * from as f64 / to as f64).floor();
        let end = ((at + 1) as f64 * from as f64 / to as f64).ceil();
        start as usize..end as usize
    };
    Tensor::fill([n, size[0], size[1], c], |[i, y, z, k]| {
        let mut values = Vec::new();
        for row in window(y, h, size[0]) {
            window(z, w, size[1]).for_each(|column| values.push(x.at([i, row, column, k])));
        }
        f(&values)
    })
}

/// Each pixel over its channels; none: nothing is subtracted.
pub fn row_norm(x: &Tensor, scale: &Tensor, shift: Option<&Tensor>, eps: f64) -> Tensor {
    let c = x.shape[3];
    let rows: Vec<(f64, f64)> = x
        .data
        .chunks(c)
        .map(|row| {
            let mean = shift.map_or(0.0, |_| row.iter().sum::<f64>() / c as f64);
            (mean, row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / c as f64)
        })
        .collect();
    let [_, h, w, _] = x.shape;
    Tensor::fill(x.shape, |place| {
        let (mean, variance) = rows[(place[0] * h + place[1]) * w + place[2]];
        let shift = shift.map_or(0.0, |shift| shift.data[place[3]]);
        (x.at(place) - mean) / (variance + eps).sqrt() * scale.data[place[3]] + shift
    })
}

pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

pub fn smooth_l1(x: &Tensor, target: &Tensor, beta: f64) -> f64 {
    let one = |x: f64, t: f64| {
        let size = (x - t).abs();
        if size < beta { size * size / (2.0 * beta) } else { size - beta / 2.0 }
    };
    x.binary(target, one).mean()
}

pub fn bce_with_logits(x: &Tensor, target: &Tensor) -> f64 {
    x.binary(target, |x, t| t * softplus(-x) + (1.0 - t) * softplus(x)).mean()
}

/// Computes the focal loss from probabilities, as in the paper.
pub fn focal(x: &Tensor, target: &Tensor, alpha: f64, gamma: f64) -> f64 {
    let one = |x: f64, t: f64| {
        let p = 1.0 / (1.0 + (-x).exp());
        let (p, alpha) = if t == 1.0 { (p, alpha) } else { (1.0 - p, 1.0 - alpha) };
        -alpha * (1.0 - p).powf(gamma) * p.ln()
    };
    x.binary(target, one).mean()
}
