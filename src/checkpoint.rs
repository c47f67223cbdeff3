//! Checkpoint files: safetensors with checksums.
//!
//! The metadata has one entry, `gradscale`: JSON in a fixed order, so that equal contents are equal bytes. It holds the
//! CRC-32C of every tensor. The last tensor, `checksum`, is the CRC-32C of all bytes before it, little-endian, so it
//! also protects the header, its length and its padding.
//!
//! Format 1 had no checksums, and stored the caller's metadata next to `gradscale`, in any order. Format 2 did not
//! store the settings of the optimizer. Format 3 has one step count for all its groups. All formats can still be read.

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize, de::DeserializeOwned, de::IgnoredAny};
use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
};

/// Key of the program's entry in the metadata of a checkpoint.
const KEY: &str = "gradscale";
/// Name of the last tensor of a checkpoint, which holds the checksum.
const CHECKSUM: &str = "checksum";
/// Size of a tensor's CRC-32C checksum in bytes.
const CHECKSUM_BYTES: usize = 4;
/// Name prefix of weights and running statistics in a checkpoint.
pub(crate) const MASTER: &str = "master";
/// Current format version. It is raised whenever an older program could misread a newer file. 4: step counts per group;
/// 3: all settings; 2: checksums.
const FORMAT: u32 = 4;
/// Format version of a training whose parameter groups share one step count. Older programs read it.
const FORMAT_SHARED_STEP_COUNT: u32 = 3;
/// First version of the checkpoint format that has checksums.
const CHECKSUMS: u32 = 2;

/// Reason why a checkpoint cannot be used.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The file is not a safetensors file, or is truncated, or its header is damaged.
    Unreadable(String),
    /// The file is a safetensors file, but not a checkpoint of this crate: for example weights of a PyTorch model.
    Foreign,
    /// The checksum of this tensor, or of the header, does not match.
    Damaged(String),
    /// The format version of the checkpoint is newer than this program.
    Format(u32),
    /// The checkpoint belongs to a training of another network.
    Other(String),
    /// The checkpoint belongs to a training with other settings.
    Settings {
        /// Group of the settings that differ: `method`, `optimizer`, `trainer`, or [`CheckpointError::DEVICE`].
        of: String,
        /// Settings that differ between checkpoint and training, at least one.
        differences: Vec<Difference>,
    },
    /// The state cannot be written to a checkpoint file.
    Unwritable(String),
    /// The operating system failed to read or write a checkpoint file.
    File {
        /// Path of the checkpoint file that cannot be read or written.
        path: PathBuf,
        /// Kind of the operating system's error.
        kind: io::ErrorKind,
        /// Message of the operating system about the file.
        reason: String,
    },
}

impl CheckpointError {
    /// Value of `of` in [`CheckpointError::Settings`] if the device lacks the engine that the checkpoint records.
    pub const DEVICE: &str = "device";

    /// Returns the error for a file that the operating system failed to read or write.
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        Self::File { path: path.to_owned(), kind: error.kind(), reason: error.to_string() }
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(cause) => write!(f, "not a safetensors file, or a truncated or damaged one: {cause}"),
            Self::Foreign => f.write_str("a safetensors file, but not a checkpoint of gradscale"),
            Self::Damaged(part) => write!(f, "damaged: {part} does not match its checksum"),
            Self::Format(format) => write!(
                f,
                "has format {format}, but this version reads formats up to {FORMAT}; \
                update gradscale"
            ),
            Self::Other(cause) => f.write_str(cause),
            Self::Settings { of, differences } => {
                let differences: Vec<String> = differences.iter().map(ToString::to_string).collect();
                write!(f, "made with another {of}: {}", differences.join(", "))
            }
            Self::Unwritable(cause) => write!(f, "cannot be written: {cause}"),
            Self::File { path, reason, .. } => write!(f, "{}: {reason}", path.display()),
        }
    }
}

/// Setting that differs between a checkpoint and the trainer that loads it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// Name of the setting that differs: `momentum`, `lr of head`, `interval`.
    pub name: String,
    /// Value of the setting in the checkpoint; `none` if the checkpoint does not have it.
    pub there: String,
    /// Value of the setting in the trainer; `none` if the trainer does not have it.
    pub here: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} in the checkpoint, {} here", self.name, self.there, self.here)
    }
}

/// Debug impl of the error, which writes the same sentence as [`fmt::Display`].
impl fmt::Debug for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for CheckpointError {}

/// Entry of the program in a checkpoint's metadata. `T` is the part that only the trainer reads.
#[derive(Serialize, Deserialize)]
struct CheckpointEntry<T> {
    format: u32,
    /// Metadata that the caller adds to a checkpoint.
    metadata: BTreeMap<String, String>,
    checksums: BTreeMap<String, u32>,
    training: T,
}

/// Part of a checkpoint's metadata entry that all format versions have.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

/// Content of a checkpoint whose checksums match: tensors and metadata.
pub(crate) struct Contents<'a, T> {
    pub tensors: BTreeMap<String, TensorView<'a>>,
    pub metadata: BTreeMap<String, String>,
    pub training: T,
}

/// Returns the caller's metadata of a checkpoint, without a trainer to load it into. All checksums are verified.
///
/// # Errors
/// Bytes that are not a checkpoint, or whose checksums do not match.
pub fn checkpoint_metadata(bytes: &[u8]) -> Result<BTreeMap<String, String>, CheckpointError> {
    Ok(open::<IgnoredAny>(bytes)?.metadata)
}

/// Returns the bytes of a checkpoint file with these f32 tensors: names, shapes, little-endian values. `together` is
/// true if all groups of the optimizer have the same step count.
pub(crate) fn write(
    tensors: &[(String, Vec<usize>, Vec<u8>)], metadata: &BTreeMap<String, String>, together: bool,
    training: impl Serialize,
) -> Result<Vec<u8>, CheckpointError> {
    let unwritable = |error: &dyn fmt::Display| CheckpointError::Unwritable(error.to_string());
    let checksums = tensors.iter().map(|(name, _, bytes)| (name.clone(), crc32c::crc32c(bytes))).collect();
    let format = if together { FORMAT_SHARED_STEP_COUNT } else { FORMAT };
    let entry = CheckpointEntry { format, metadata: metadata.clone(), checksums, training };
    let json = serde_json::to_string(&entry).map_err(|error| unwritable(&error))?;
    let mut views = Vec::new();
    for (name, shape, bytes) in tensors {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes).map_err(|error| unwritable(&error))?;
        views.push((name.as_str(), view));
    }
    // safetensors stores the widest type first, so bytes come last.
    let place = [0; CHECKSUM_BYTES];
    let last = TensorView::new(Dtype::U8, vec![CHECKSUM_BYTES], &place).map_err(|error| unwritable(&error))?;
    views.push((CHECKSUM, last));
    // Collected, because the type of the map depends on a feature of safetensors, which another crate may enable.
    let all = safetensors::serialize(views, Some([(KEY.to_owned(), json)].into_iter().collect()));
    let mut bytes = all.map_err(|error| unwritable(&error))?;
    bytes.truncate(bytes.len() - CHECKSUM_BYTES);
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend(checksum.to_le_bytes());
    Ok(bytes)
}

/// Reads the bytes of a checkpoint and verifies its checksums.
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
            // These formats have a checksum, so it was removed.
            CHECKSUMS..=FORMAT => Err(header()),
            _ => Err(CheckpointError::Format(format)),
        };
    };
    let json = json.unwrap_or_default();
    let entry = serde_json::from_str::<CheckpointEntry<T>>(&json);
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
        // The entry was written by another format version.
        (None, entry) => match (serde_json::from_str(&json), entry) {
            (Ok(Version { format }), Err(error)) if (CHECKSUMS..=FORMAT).contains(&format) => Err(unreadable(&error)),
            (Ok(Version { format }), _) => Err(CheckpointError::Format(format)),
            (Err(_), _) => Err(CheckpointError::Foreign),
        },
    }
}

/// Returns the values of an f32 tensor in a checkpoint.
pub(crate) fn floats(tensor: &TensorView<'_>) -> Vec<f32> {
    tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}
