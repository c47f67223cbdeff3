//! Content of a checkpoint, for comparisons.

use std::{collections::BTreeMap, fs, path::Path};

/// Tensors, each entry of the metadata, and the rest of the header, so that a difference can be named.
pub fn content(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let bytes = fs::read(path).expect("a file");
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).expect("safetensors");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let tensors = file.tensors().into_iter().map(|(name, view)| (name, view.data().to_vec()));
    let metadata = header.metadata().clone().expect("metadata");
    let mut entry: serde_json::Value = serde_json::from_str(&metadata["gradscale"]).expect("JSON");
    let own = entry["metadata"].take();
    let own =
        own.as_object().expect("metadata").iter().map(|(key, value)| (format!("metadata {key}"), value.to_string()));
    let all = own.chain([("header".to_owned(), entry.to_string())]);
    tensors.chain(all.map(|(key, value)| (key, value.into_bytes()))).collect()
}

/// Returns everything except the settings of further training, and the checksum, which covers them.
#[allow(dead_code, reason = "not all programs that share this file compare trainings of other settings")]
pub fn state(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut content = content(path);
    for settings in ["metadata plan", "checksum"] {
        assert!(content.remove(settings).is_some(), "no {settings}");
    }
    content
}
