//! The oracle: naive f64, written from the definitions.

/// Values of shape `[n, h, w, c]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub shape: [usize; 4],
    pub data: Vec<f64>,
}

pub fn len(shape: [usize; 4]) -> usize {
    shape.iter().product()
}

/// Returns all positions of a tensor in order, with c running fastest.
fn places(shape: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    let [_, h, w, c] = shape;
    (0..len(shape)).map(move |i| [i / (h * w * c), i / (w * c) % h, i / c % w, i % c])
}

impl Tensor {
    pub fn new(shape: [usize; 4], values: &[f32]) -> Self {
        assert_eq!(values.len(), len(shape));
        Self { shape, data: values.iter().copied().map(f64::from).collect() }
    }

    pub fn fill(shape: [usize; 4], f: impl FnMut([usize; 4]) -> f64) -> Self {
        Self { shape, data: places(shape).map(f).collect() }
    }

    pub fn number(value: f64) -> Self {
        Self { shape: [1; 4], data: vec![value] }
    }

    fn index(&self, [n, y, x, c]: [usize; 4]) -> usize {
        let [_, h, w, channels] = self.shape;
        ((n * h + y) * w + x) * channels + c
    }

    pub fn at(&self, place: [usize; 4]) -> f64 {
        self.data[self.index(place)]
    }

    pub fn map(&self, f: impl FnMut(f64) -> f64) -> Self {
        Self { shape: self.shape, data: self.data.iter().copied().map(f).collect() }
    }

    /// Returns the broadcast value for `place` of a larger tensor: that of the same position, of its channel, or the
    /// only one.
    fn spread(&self, shape: [usize; 4], place: [usize; 4]) -> f64 {
        match self.data.len() {
            _ if self.shape == shape => self.at(place),
            1 => self.data[0],
            len if len == shape[3] && (self.shape[3] == len || self.shape[..3].iter().product::<usize>() == len) => {
                self.data[place[3]]
            }
            _ => self.at([0, 1, 2, 3].map(|i| if self.shape[i] == 1 { 0 } else { place[i] })),
        }
    }

    pub fn binary(&self, b: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        let by_channel = b.data.len() == self.shape[3];
        let shape = [0, 1, 2, 3].map(|i| if by_channel { self.shape[i] } else { self.shape[i].max(b.shape[i]) });
        Self::fill(shape, |place| f(self.spread(shape, place), b.spread(shape, place)))
    }

    /// Sums along an axis, or means.
    pub fn along(&self, axis: usize, mean: bool) -> Self {
        let mut shape = self.shape;
        let len = std::mem::replace(&mut shape[axis], 1);
        Self::fill(shape, |place| {
            let one = |i: usize| {
                let mut place = place;
                place[axis] = i;
                self.at(place)
            };
            (0..len).map(one).sum::<f64>() / if mean { len as f64 } else { 1.0 }
        })
    }

    pub fn sum(&self) -> f64 {
        self.data.iter().sum()
    }

    pub fn mean(&self) -> f64 {
        self.sum() / self.data.len() as f64
    }
}

/// x·wᵀ + b over channels.
pub fn linear(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Tensor {
    let ([n, h, wide, c], out) = (x.shape, w.shape[0]);
    Tensor::fill([n, h, wide, out], |[i, y, z, o]| {
        (0..c).map(|k| x.at([i, y, z, k]) * w.data[o * c + k]).sum::<f64>() + b.map_or(0.0, |b| b.data[o])
    })
}

/// Numbers of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    pub stride: usize,
    pub pad: usize,
    pub dilation: usize,
    pub groups: usize,
}

pub fn conv(x: &Tensor, w: &Tensor, b: Option<&Tensor>, p: Conv) -> Tensor {
    let ([n, height, width, _], [out, kh, kw, part]) = (x.shape, w.shape);
    let size = |size: usize, k: usize| (size + 2 * p.pad - (k - 1) * p.dilation - 1) / p.stride + 1;
    Tensor::fill([n, size(height, kh), size(width, kw), out], |[i, y, z, o]| {
        let first = o / (out / p.groups) * part;
        let mut sum = b.map_or(0.0, |b| b.data[o]);
        for (u, v) in (0..kh).flat_map(|u| (0..kw).map(move |v| (u, v))) {
            let at = [y * p.stride + u * p.dilation, z * p.stride + v * p.dilation];
            if at[0] < p.pad || at[1] < p.pad || at[0] - p.pad >= height || at[1] - p.pad >= width {
                continue;
            }
            let row = [i, at[0] - p.pad, at[1] - p.pad];
            sum += (0..part).map(|k| x.at([row[0], row[1], row[2], first + k]) * w.at([o, u, v, k])).sum::<f64>();
        }
        sum
    })
}

/// Over each channel (`groups` none), or over groups of channels of each image.
pub fn norm(x: &Tensor, groups: Option<usize>, scale: &Tensor, shift: &Tensor, eps: f64) -> Tensor {
    let channels = x.shape[3];
    let group = |[n, _, _, c]: [usize; 4]| groups.map_or(c, |groups| n * groups + c * groups / channels);
    let count = groups.map_or(channels, |groups| groups * x.shape[0]);
    let mean_of = |values: &dyn Fn([usize; 4]) -> f64| {
        let mut sums = vec![(0.0, 0.0); count];
        places(x.shape).for_each(|place| {
            let (sum, n) = &mut sums[group(place)];
            *sum += values(place);
            *n += 1.0;
        });
        sums.into_iter().map(|(sum, n)| sum / n).collect::<Vec<f64>>()
    };
    let mean = mean_of(&|place| x.at(place));
    let variance = mean_of(&|place| (x.at(place) - mean[group(place)]).powi(2));
    Tensor::fill(x.shape, |place| {
        let normal = (x.at(place) - mean[group(place)]) / (variance[group(place)] + eps).sqrt();
        normal * scale.data[place[3]] + shift.data[place[3]]
    })
}

/// Max-pooling with adjacent windows, also incomplete ones at the end. Returns the position in x of each result too.
pub fn max_pool(x: &Tensor, window: [usize; 2]) -> (Tensor, Vec<usize>) {
    let [n, h, w, c] = x.shape;
    let mut at = Vec::new();
    let y = Tensor::fill([n, h.div_ceil(window[0]), w.div_ceil(window[1]), c], |[i, y, z, k]| {
        let mut best: Option<usize> = None;
        for row in y * window[0]..((y + 1) * window[0]).min(h) {
            for column in z * window[1]..((z + 1) * window[1]).min(w) {
                let here = x.index([i, row, column, k]);
                if best.is_none_or(|best| x.data[here] > x.data[best]) {
                    best = Some(here);
                }
            }
        }
        let best = best.expect("a window begins inside");
        at.push(best);
        x.data[best]
    });
    (y, at)
}

pub fn unpool(x: &Tensor, at: &[usize], shape: [usize; 4]) -> Tensor {
    let mut y = Tensor::fill(shape, |_| 0.0);
    at.iter().zip(&x.data).for_each(|(&at, &x)| y.data[at] += x);
    y
}

/// Sums over windows by their area; zeros around.
pub fn average_pool(x: &Tensor, window: [usize; 2], stride: [usize; 2], pad: [usize; 2]) -> Tensor {
    let [n, h, w, c] = x.shape;
    let size = |size: usize, i: usize| (size + 2 * pad[i] - window[i]) / stride[i] + 1;
    Tensor::fill([n, size(h, 0), size(w, 1), c], |[i, y, z, k]| {
        let mut sum = 0.0;
        for (u, v) in (0..window[0]).flat_map(|u| (0..window[1]).map(move |v| (u, v))) {
            let (row, column) = (y * stride[0] + u, z * stride[1] + v);
            if (pad[0]..pad[0] + h).contains(&row) && (pad[1]..pad[1] + w).contains(&column) {
                sum += x.at([i, row - pad[0], column - pad[1], k]);
            }
        }
        sum / (window[0] * window[1]) as f64
    })
}

pub fn concat(parts: &[&Tensor], axis: usize) -> Tensor {
    let mut shape = parts[0].shape;
    shape[axis] = parts.iter().map(|part| part.shape[axis]).sum();
    Tensor::fill(shape, |mut place| {
        for part in parts {
            if place[axis] < part.shape[axis] {
                return part.at(place);
            }
            place[axis] -= part.shape[axis];
        }
        unreachable!("a place lies in one part")
    })
}

pub fn slice(x: &Tensor, axis: usize, start: usize, len: usize) -> Tensor {
    let mut shape = x.shape;
    shape[axis] = len;
    Tensor::fill(shape, |mut place| {
        place[axis] += start;
        x.at(place)
    })
}

/// x / (k + α·(mean of x² over n neighbouring channels, zeros outside))^β.
pub fn local_response_norm(x: &Tensor, n: usize, alpha: f64, beta: f64, k: f64) -> Tensor {
    let channels = x.shape[3];
    Tensor::fill(x.shape, |[i, y, z, c]| {
        let near = c.saturating_sub(n / 2)..(c + n / 2 + 1).min(channels);
        let mean = near.map(|c| x.at([i, y, z, c]).powi(2)).sum::<f64>() / n as f64;
        x.at([i, y, z, c]) / (k + alpha * mean).powf(beta)
    })
}

/// Divisor of a cross-entropy.
#[derive(Clone, Copy, Debug)]
pub enum Divisor {
    Rows,
    Weights,
    Fixed(f64),
}

pub fn cross_entropy(x: &Tensor, labels: &[u8], weights: Option<&Tensor>, ignore: Option<u8>, divisor: Divisor) -> f64 {
    let (mut sum, mut rows, mut total) = (0.0, 0.0, 0.0);
    for (row, &label) in x.data.chunks(x.shape[3]).zip(labels) {
        if Some(label) == ignore {
            continue;
        }
        let weight = weights.map_or(1.0, |weights| weights.data[usize::from(label)]);
        let lse = row.iter().map(|x| x.exp()).sum::<f64>().ln();
        sum += weight * (lse - row[usize::from(label)]);
        rows += 1.0;
        total += weight;
    }
    sum / match divisor {
        Divisor::Rows => rows,
        Divisor::Weights => total,
        Divisor::Fixed(divisor) => divisor,
    }
}

pub fn mse(x: &Tensor, target: &Tensor) -> f64 {
    x.binary(target, |x, t| (x - t).powi(2)).mean()
}

pub fn l1(x: &Tensor, target: &Tensor) -> f64 {
    x.binary(target, |x, t| (x - t).abs()).mean()
}
