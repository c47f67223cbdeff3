//! File in the user's cache folder with the fastest tile of an adapter. A file that is missing, damaged or of another
//! version counts as none, and one that cannot be written is left out: tiles are then timed again.

use crate::product_tile::ProductTile;
use std::{
    ffi::OsString,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Bytes of a cache file that are read at most: several times those of a valid one.
const MAX_FILE_BYTES: u64 = 1 << 12;

/// Cache file of an adapter and its driver. Times change with drivers and with the kernels, so both versions are in it.
#[derive(Clone, Debug)]
pub(crate) struct TileCache {
    path: PathBuf,
    adapter: String,
}

impl TileCache {
    /// Returns the cache file in a folder for an adapter, named as by [`crate::Adapter::name`].
    pub fn new(folder: &Path, adapter: &str) -> Self {
        let path = folder.join(format!("wgpu-tile-{:016x}.txt", fnv1a(adapter)));
        Self { path, adapter: adapter.to_owned() }
    }

    /// Returns the cache file in the user's cache folder, if the environment names one.
    pub fn in_user_folder(adapter: &str) -> Option<Self> {
        user_cache_folder(|name| std::env::var_os(name)).map(|folder| Self::new(&folder, adapter))
    }

    /// Returns the kept tile.
    pub fn read(&self) -> Option<ProductTile> {
        let mut text = String::new();
        fs::File::open(&self.path).ok()?.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
        ProductTile::ALL.into_iter().find(|&tile| self.text(tile) == text)
    }

    /// Keeps a tile if the folder can be written.
    pub fn write(&self, tile: ProductTile) {
        // Renamed at the end, so that another program never reads a part of the file.
        let unfinished = self.path.with_extension(std::process::id().to_string());
        if self.write_by(&unfinished, tile).is_err() {
            fs::remove_file(&unfinished).ok();
        }
    }

    fn write_by(&self, unfinished: &Path, tile: ProductTile) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(unfinished, self.text(tile))?;
        fs::rename(unfinished, &self.path)
    }

    fn text(&self, tile: ProductTile) -> String {
        format!("gradscale-wgpu {}\nadapter {}\ntile {tile}\n", env!("CARGO_PKG_VERSION"), self.adapter)
    }
}

/// Returns the folder for cached files of this user, from environment variables: `LOCALAPPDATA` on Windows, elsewhere
/// `XDG_CACHE_HOME`, or the usual folder in `HOME`.
fn user_cache_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // Relative paths are ignored, as the specification of XDG demands.
    let folder = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
    let caches = if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else {
        folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(usual)))
    };
    caches.map(|caches| caches.join("gradscale"))
}

/// Returns a number for a text (FNV-1a, 64 bits) that is the same in every program. Two adapters with one number would
/// replace each other's file, whose content names the adapter.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
