//! The table of `tests/golden/vision.py`, and the values that both sides derive from names.

use safetensors::{Dtype, tensor::TensorView};

/// Distance of batch norm's shifts from 0, as in the script.
const SHIFT: f64 = 2.0;

const TABLE: &str = include_str!("../../../golden/vision.txt");

/// A tensor in three numbers: its largest magnitude, and two sums with drawn signs over the root of its length.
#[derive(Debug)]
pub struct Row {
    pub key: &'static str,
    pub shape: Vec<usize>,
    pub numbers: [f32; 3],
}

/// A network of the table.
pub struct Golden {
    pub name: &'static str,
    /// Batch, rows, columns.
    pub images: [usize; 3],
    pub rows: Vec<Row>,
}

impl Golden {
    pub fn row(&self, key: &str) -> &Row {
        self.rows.iter().find(|row| row.key == key).unwrap_or_else(|| panic!("{} has no {key}", self.name))
    }
}

impl Golden {
    /// Returns true if a bias belongs to a normalisation, whose weight has one value for each channel.
    fn is_norm(&self, bias: &str) -> bool {
        bias.strip_suffix(".bias").is_some_and(|layer| self.row(&format!("{layer}.weight")).shape.len() == 1)
    }
}

pub fn golden() -> Vec<Golden> {
    read(TABLE)
}

/// A table of these lines.
pub fn read(table: &'static str) -> Vec<Golden> {
    let mut all: Vec<Golden> = Vec::new();
    for line in table.lines() {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("a word");
        let key = word();
        if key == "network" {
            let name = word();
            let images = [(); 3].map(|()| word().parse().expect("a size"));
            all.push(Golden { name, images, rows: Vec::new() });
            continue;
        }
        let shape = word().split('x').map(|size| size.parse().expect("a size")).collect();
        let numbers = [(); 3].map(|()| word().parse().expect("a number"));
        all.last_mut().expect("a network first").rows.push(Row { key, shape, numbers });
    }
    all
}

/// 32 random bits for each element: FNV-1a of the name, then MurmurHash3's end.
pub fn hashed(name: &str, count: usize, seed: u32) -> Vec<u32> {
    let state =
        name.bytes().fold(2_166_136_261 ^ seed, |state: u32, byte| (state ^ u32::from(byte)).wrapping_mul(16_777_619));
    let word = |i: u32| {
        let mut bits = i.wrapping_mul(0x9E37_79B1).wrapping_add(state);
        bits = (bits ^ (bits >> 16)).wrapping_mul(0x85EB_CA6B);
        bits = (bits ^ (bits >> 13)).wrapping_mul(0xC2B2_AE35);
        bits ^ (bits >> 16)
    };
    (0..u32::try_from(count).expect("32 bits")).map(word).collect()
}

/// The same in f64.
pub fn drawn(name: &str, count: usize) -> impl Iterator<Item = f64> {
    hashed(name, count, 0).into_iter().map(|bits| f64::from(bits) / 2f64.powi(31) - 1.0)
}

/// Returns numbers in −1 … 1, derived from a name.
#[expect(clippy::cast_possible_truncation, reason = "rounded")]
pub fn uniform(name: &str, count: usize) -> Vec<f32> {
    drawn(name, count).map(|value| value as f32).collect()
}

/// A tensor as a row has it.
pub fn line(key: &'static str, values: &[f32]) -> Row {
    let largest = values.iter().fold(0f32, |most, value| most.max(value.abs()));
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "rounded")]
    let sum = |seed| {
        let signs = hashed(key, values.len(), seed).into_iter().map(|bits| if bits >> 31 == 1 { -1.0 } else { 1.0 });
        let sum: f64 = signs.zip(values).map(|(sign, value)| sign * f64::from(*value)).sum();
        (sum / (values.len() as f64).sqrt()) as f32
    };
    Row { key, shape: Vec::new(), numbers: [largest, sum(1), sum(2)] }
}

/// `[n, c, pixels]` as `[n, pixels, c]`.
pub fn channels_last(values: &[f32], channels: usize, pixels: usize) -> Vec<f32> {
    let image = |image: &[f32]| -> Vec<f32> {
        (0..pixels).flat_map(|pixel| (0..channels).map(move |c| c * pixels + pixel)).map(|at| image[at]).collect()
    };
    values.chunks(channels * pixels).flat_map(image).collect()
}

/// Permutes `[n, h, w, c]` to `[n, c, h, w]`; a tensor without pixels is not changed.
pub fn channels_first(values: &[f32], [_, h, w, c]: [usize; 4]) -> Vec<f32> {
    channels_last(values, h * w, c)
}

/// Returns the file of PyTorch's model of that network, with every tensor derived from its name.
pub fn state_dict(network: &Golden) -> Vec<u8> {
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    let bytes = |values: &mut dyn Iterator<Item = f64>| -> Vec<u8> {
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        values.flat_map(|value| (value as f32).to_le_bytes()).collect()
    };
    for Row { key, shape, .. } in network.rows.iter().filter(|row| row.key.contains('.')) {
        let count: usize = shape.iter().product();
        #[expect(clippy::cast_precision_loss, reason = "sizes of kernels")]
        let values = match shape[..] {
            [outputs, _, ..] => {
                let bound = (6.0 / (count / outputs) as f64).sqrt();
                bytes(&mut drawn(key, count).map(|value| value * bound))
            }
            _ if key.ends_with(".weight") => bytes(&mut drawn(key, count).map(|value| 1.0 + 0.2 * value)),
            _ if network.is_norm(key) => bytes(&mut drawn(key, count).map(|value| {
                let shift = if value < -0.5 { -SHIFT } else { SHIFT };
                shift + 0.1 * value
            })),
            _ => bytes(&mut drawn(key, count).map(|value| 0.1 * value)),
        };
        tensors.push(((*key).to_owned(), shape.clone(), values));
        // A normalisation, whose weight has one value for each channel, also has running statistics.
        if shape.len() == 1
            && let Some(layer) = key.strip_suffix(".weight")
        {
            for (leaf, mean, spread) in [("running_mean", 0.0, 0.1), ("running_var", 1.0, 0.5)] {
                let name = format!("{layer}.{leaf}");
                let values = bytes(&mut drawn(&name, count).map(|value| mean + spread * value));
                tensors.push((name, shape.clone(), values));
            }
        }
    }
    let views = tensors.iter().map(|(name, shape, bytes)| {
        (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).expect("its length"))
    });
    safetensors::serialize(views, None).expect("a file")
}
