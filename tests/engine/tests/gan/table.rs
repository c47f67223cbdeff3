//! The table of `tests/golden/gan.py`.

use safetensors::{Dtype, tensor::TensorView};
use std::collections::BTreeMap;

const TABLE: &str = include_str!("../../../golden/gan.txt");

/// Shapes and values by key, as PyTorch has them.
#[derive(Default)]
pub struct Case(BTreeMap<&'static str, (Vec<usize>, Vec<f32>)>);

pub fn cases() -> BTreeMap<&'static str, Case> {
    let mut all: BTreeMap<_, Case> = BTreeMap::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.split('\t');
        let [case, key, shape, values] = [(); 4].map(|()| parts.next().expect("four columns"));
        let shape = shape.split(' ').map(|size| size.parse().expect("a size")).collect();
        let values = values.split(' ').map(|value| value.parse().expect("a number")).collect();
        all.entry(case).or_default().0.insert(key, (shape, values));
    }
    all
}

impl Case {
    pub fn floats(&self, key: &str) -> Vec<f32> {
        self.0[key].1.clone()
    }

    /// Returns the table's values for a parameter of the engine, channels last. `None` if the table lacks it.
    pub fn of_engine(&self, prefix: &str, name: &str) -> Option<Vec<f32>> {
        let (layer, leaf) = name.rsplit_once('.')?;
        let key = |leaf: &str| format!("{prefix}{layer}.{leaf}");
        let found = |leaf: &str| self.0.get(key(leaf).as_str());
        match leaf {
            "running" => Some([found("running_mean")?.1.clone(), found("running_var")?.1.clone()].concat()),
            "scale" => Some(found("weight")?.1.clone()),
            "shift" => Some(found("bias")?.1.clone()),
            _ => {
                let (shape, values) = found(leaf)?;
                let [out, inputs, pixels] = [shape[0], shape[1], shape[2] * shape[3]];
                let at = |o: usize, pixel: usize, i: usize| values[(o * inputs + i) * pixels + pixel];
                let all = (0..out).flat_map(|o| (0..pixels).map(move |pixel| (o, pixel)));
                Some(all.flat_map(|(o, pixel)| (0..inputs).map(move |i| at(o, pixel, i))).collect())
            }
        }
    }
}

/// Returns a `state_dict` file of the tensors whose names have the prefix.
pub fn state_dict(case: &Case, prefix: &str) -> Vec<u8> {
    let of = |(key, (shape, values)): (&&'static str, &(Vec<usize>, Vec<f32>))| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Some((key.strip_prefix(prefix)?, shape.clone(), bytes))
    };
    let tensors: Vec<_> = case.0.iter().filter_map(of).collect();
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| (*name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("a tensor")));
    safetensors::serialize(views, None).expect("a file")
}

/// The script's images.
pub fn pattern(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 % 65) as f32 - 32.0) / 32.0).collect()
}
