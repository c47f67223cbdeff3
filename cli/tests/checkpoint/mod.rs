//! What is in a checkpoint, in an order of its own: files keep their metadata in any.

use std::{collections::BTreeMap, fs, path::Path};

/// Tensors and metadata by name.
pub fn content(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let bytes = fs::read(path).expect("a file");
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).expect("safetensors");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let tensors = file.tensors().into_iter().map(|(name, view)| (name, view.data().to_vec()));
    let metadata = header.metadata().clone().expect("metadata");
    tensors.chain(metadata.into_iter().map(|(key, value)| (format!("metadata {key}"), value.into_bytes()))).collect()
}
