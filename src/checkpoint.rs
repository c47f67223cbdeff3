//! Checkpoints as files: safetensors with checksums.
//!
//! The metadata has one entry, `gradscale`: JSON, in a fixed order, so that equal contents are equal bytes. It holds the
//! CRC-32C of every tensor. The last tensor, `checksum`, is the CRC-32C of all bytes before it, little-endian, so that
//! the header, its length and its padding are covered too. Format 1 had no checksums, and the caller's metadata beside
//! `gradscale`, in any order; format 2 did not say how an optimizer was set, format 3 has one
//! number of steps for all its groups. All can still be read.

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize, de::DeserializeOwned, de::IgnoredAny};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

/// Name of our entry of the metadata.
const KEY: &str = "gradscale";
/// Name of the last tensor.
const CHECKSUM: &str = "checksum";
/// Bytes of a CRC-32C.
const CHECKSUM_BYTES: usize = 4;
/// What the names of weights and running statistics begin with.
pub(crate) const MASTER: &str = "master";
/// Raised whenever an older program could misread a newer file. 4: steps of each group; 3: all settings; 2: checksums.
const FORMAT: u32 = 4;
/// Format version of a training whose parameter groups share one step count. Older programs read it.
const FORMAT_SHARED_STEP_COUNT: u32 = 3;
/// The first with checksums.
const CHECKSUMS: u32 = 2;

/// Why a checkpoint cannot be used.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointError {
    /// No safetensors file, or one that was cut off, or damaged where it says what it holds.
    Unreadable(String),
    /// A safetensors file that no training of this crate wrote: weights of a PyTorch model, say.
    Foreign,
    /// Other bytes than those that were written: of this tensor, or of the header.
    Damaged(String),
    /// A format that this version does not know.
    Format(u32),
    /// Of another network.
    Other(String),
    /// Of a training with other settings.
    Settings {
        /// Whose they are: `method`, `optimizer`, `trainer`, or [`CheckpointError::DEVICE`].
        of: String,
        /// Those that differ, at least one.
        differences: Vec<Difference>,
    },
    /// Something that no file can hold.
    Unwritable(String),
}

impl CheckpointError {
    /// Value of `of` in [`CheckpointError::Settings`] where the device lacks the engine that the checkpoint records.
    pub const DEVICE: &str = "device";
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(cause) => write!(f, "no safetensors file, or one that was cut off or damaged: {cause}"),
            Self::Foreign => f.write_str("a safetensors file, but no checkpoint of gradscale"),
            Self::Damaged(part) => write!(f, "damaged: {part} does not match its checksum"),
            Self::Format(format) => write!(f, "of format {format}; this version reads formats up to {FORMAT}"),
            Self::Other(cause) => f.write_str(cause),
            Self::Settings { of, differences } => {
                let differences: Vec<String> = differences.iter().map(ToString::to_string).collect();
                write!(f, "made by another {of}: {}", differences.join(", "))
            }
            Self::Unwritable(cause) => write!(f, "cannot be written: {cause}"),
        }
    }
}

/// A setting of a training that is not the same in a checkpoint and in the trainer that loads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What is set: `momentum`, `lr of head`, `interval`.
    pub name: String,
    /// Its value in the checkpoint; `none` if it says nothing of it.
    pub there: String,
    /// Its value in the trainer.
    pub here: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} there, {} here", self.name, self.there, self.here)
    }
}

/// The sentence of [`fmt::Display`].
impl fmt::Debug for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for CheckpointError {}

/// Our entry of the metadata. `T` is what only the trainer understands.
#[derive(Serialize, Deserialize)]
struct Entry<T> {
    format: u32,
    /// The caller's.
    metadata: BTreeMap<String, String>,
    checksums: BTreeMap<String, u32>,
    training: T,
}

/// What stands in every entry, whatever its format.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

/// A checkpoint whose bytes are those that were written.
pub(crate) struct Contents<'a, T> {
    pub tensors: BTreeMap<String, TensorView<'a>>,
    pub metadata: BTreeMap<String, String>,
    pub training: T,
}

/// The caller's metadata of a checkpoint, without a trainer to load it into. All checksums are compared.
///
/// # Errors
/// Bytes that are no checkpoint, or not as they were written.
pub fn checkpoint_metadata(bytes: &[u8]) -> Result<BTreeMap<String, String>, CheckpointError> {
    Ok(open::<IgnoredAny>(bytes)?.metadata)
}

/// The bytes of a file with these f32 tensors: names, shapes, little-endian values. `together` says that all groups of the
/// optimizer have had the same steps.
pub(crate) fn write(
    tensors: &[(String, Vec<usize>, Vec<u8>)], metadata: &BTreeMap<String, String>, together: bool,
    training: impl Serialize,
) -> Result<Vec<u8>, CheckpointError> {
    let unwritable = |error: &dyn fmt::Display| CheckpointError::Unwritable(error.to_string());
    let checksums = tensors.iter().map(|(name, _, bytes)| (name.clone(), crc32c::crc32c(bytes))).collect();
    let format = if together { FORMAT_SHARED_STEP_COUNT } else { FORMAT };
    let entry = Entry { format, metadata: metadata.clone(), checksums, training };
    let json = serde_json::to_string(&entry).map_err(|error| unwritable(&error))?;
    let mut views = Vec::new();
    for (name, shape, bytes) in tensors {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes).map_err(|error| unwritable(&error))?;
        views.push((name.as_str(), view));
    }
    // safetensors puts the widest type first: bytes come last.
    let place = [0; CHECKSUM_BYTES];
    let last = TensorView::new(Dtype::U8, vec![CHECKSUM_BYTES], &place).map_err(|error| unwritable(&error))?;
    views.push((CHECKSUM, last));
    let all = safetensors::serialize(views, Some(HashMap::from([(KEY.to_owned(), json)])));
    let mut bytes = all.map_err(|error| unwritable(&error))?;
    bytes.truncate(bytes.len() - CHECKSUM_BYTES);
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend(checksum.to_le_bytes());
    Ok(bytes)
}

/// Reads a file, and compares its checksums.
pub(crate) fn open<T: DeserializeOwned>(bytes: &[u8]) -> Result<Contents<'_, T>, CheckpointError> {
    let unreadable = |error: &dyn fmt::Display| CheckpointError::Unreadable(error.to_string());
    let header = || CheckpointError::Damaged("its header".to_owned());
    if bytes.is_empty() {
        return Err(unreadable(&"the file is empty"));
    }
    let (_, read) = SafeTensors::read_metadata(bytes).map_err(|error| unreadable(&error))?;
    let file = SafeTensors::deserialize(bytes).map_err(|error| unreadable(&error))?;
    let mut tensors: BTreeMap<String, TensorView<'_>> = file.tensors().into_iter().collect();
    let mut metadata: BTreeMap<String, String> = read.metadata().clone().unwrap_or_default().into_iter().collect();
    let json = metadata.remove(KEY);
    let Some(checksum) = tensors.remove(CHECKSUM) else {
        let json = json.ok_or(CheckpointError::Foreign)?;
        let Version { format } = serde_json::from_str(&json).map_err(|_| header())?;
        return match format {
            1 => Ok(Contents { tensors, metadata, training: serde_json::from_str(&json).map_err(|_| header())? }),
            // It would have one.
            CHECKSUMS..=FORMAT => Err(header()),
            _ => Err(CheckpointError::Format(format)),
        };
    };
    let json = json.unwrap_or_default();
    let entry = serde_json::from_str::<Entry<T>>(&json);
    let sums = entry.as_ref().map(|entry| &entry.checksums).ok();
    let damaged = sums.and_then(|sums| {
        tensors.iter().find(|(name, view)| sums.get(*name).is_some_and(|&sum| sum != crc32c::crc32c(view.data())))
    });
    let (before, last) = bytes.split_at(bytes.len() - CHECKSUM_BYTES.min(bytes.len()));
    let whole = checksum.data() == last && last == crc32c::crc32c(before).to_le_bytes();
    match (damaged, entry) {
        (Some((name, _)), _) => Err(CheckpointError::Damaged(format!("tensor {name}"))),
        (None, _) if !whole => Err(header()),
        (None, Ok(entry)) if (CHECKSUMS..=FORMAT).contains(&entry.format) => {
            Ok(Contents { tensors, metadata: entry.metadata, training: entry.training })
        }
        // As it was written, by another version.
        (None, entry) => match (serde_json::from_str(&json), entry) {
            (Ok(Version { format }), Err(error)) if (CHECKSUMS..=FORMAT).contains(&format) => Err(unreadable(&error)),
            (Ok(Version { format }), _) => Err(CheckpointError::Format(format)),
            (Err(_), _) => Err(CheckpointError::Foreign),
        },
    }
}

/// The values of an f32 tensor.
pub(crate) fn floats(tensor: &TensorView<'_>) -> Vec<f32> {
    tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}
