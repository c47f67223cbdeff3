//! Choice of the tile of products: preference, first guess, the fastest of those that were timed, and the reason.

use crate::{Error, product_tile::ProductTile, tile_cache::TileCache};
use core::{fmt, str::FromStr, time::Duration};
use std::ffi::OsString;

/// Environment variable that [`TilePreference`] is read from.
const VARIABLE: &str = "GRADSCALE_WGPU_TILE";
/// Share of the first guess's time that another tile must stay below to replace it. Shortest times of one product vary by a
/// few percent on a GPU that other programs use, and two runs on one device should choose the same.
const MAX_SHARE_OF_GUESS: f64 = 0.95;

/// Tile of products that the user requests. All tiles have the same bits, so this decides only about speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TilePreference {
    /// The fastest of all tiles, timed when the device opens. Drivers on a CPU get the first guess, because compiling and
    /// timing all tiles takes them four seconds, and so do browsers, where nothing can wait for times.
    #[default]
    Auto,
    /// As [`TilePreference::Auto`], but timed on drivers on a CPU, too.
    Measure,
    /// As [`TilePreference::Auto`], but kept in the user's cache folder for the adapter and its driver, and not timed again.
    Keep,
    /// This tile, without timing.
    Pinned(ProductTile),
}

impl TilePreference {
    /// Reads the preference from the environment variable `GRADSCALE_WGPU_TILE`: `auto`, `measure`, `keep`, or the name of
    /// a tile.
    pub(crate) fn from_environment() -> Result<Self, Error> {
        Self::from_variable(std::env::var_os(VARIABLE))
    }

    fn from_variable(value: Option<OsString>) -> Result<Self, Error> {
        value.map_or(Ok(Self::default()), |text| text.to_string_lossy().parse())
    }

    /// Returns whether tiles are timed.
    pub(crate) const fn needs_timing(self, is_software: bool) -> bool {
        let can_wait = !cfg!(target_family = "wasm");
        match self {
            Self::Auto | Self::Keep => can_wait && !is_software,
            Self::Measure => can_wait,
            Self::Pinned(_) => false,
        }
    }

    /// Returns the tile that this preference leads to. `cache` is where the adapter's tile is kept, if there is such a
    /// folder. `time` is called if tiles must be timed; if it fails, the first guess remains.
    ///
    /// # Errors
    /// [`Error::Lost`] of `time`.
    pub(crate) async fn choose(
        self, is_software: bool, guess: ProductTile, cache: Option<TileCache>,
        time: impl AsyncFnOnce() -> Result<Vec<TileTime>, Error>,
    ) -> Result<TileChoice, Error> {
        if let Self::Pinned(tile) = self {
            return Ok(TileChoice { tile, reason: TileReason::Pinned });
        }
        let guessed = TileChoice { tile: guess, reason: TileReason::Guessed };
        if !self.needs_timing(is_software) {
            return Ok(guessed);
        }
        let cache = cache.filter(|_| self == Self::Keep);
        if let Some(tile) = cache.as_ref().and_then(TileCache::read) {
            return Ok(TileChoice { tile, reason: TileReason::Kept });
        }
        match time().await {
            Ok(times) => {
                let tile = fastest_tile(guess, &times);
                if let Some(cache) = cache {
                    cache.write(tile);
                }
                Ok(TileChoice { tile, reason: TileReason::Measured(times) })
            }
            Err(Error::Lost(reason)) => Err(Error::Lost(reason)),
            // A device without memory for the timed product may well compute smaller ones.
            Err(_) => Ok(guessed),
        }
    }
}

impl FromStr for TilePreference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" | "auto" => Ok(Self::Auto),
            "measure" => Ok(Self::Measure),
            "keep" => Ok(Self::Keep),
            _ => {
                ProductTile::ALL.into_iter().find(|tile| tile.to_string() == text).map(Self::Pinned).ok_or_else(|| {
                    let names = ProductTile::ALL.map(|tile| tile.to_string()).join(", ");
                    Error::Tile(format!("{VARIABLE} must be auto, measure, keep or one of {names}, not {text}"))
                })
            }
        }
    }
}

/// Time of one product by a tile, the shortest of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileTime {
    /// Tile of the timed product.
    pub tile: ProductTile,
    /// Time on the device.
    pub time: Duration,
}

/// Tile that large products use, and why. Products that do not fill it use a smaller one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileChoice {
    /// Tile of large products.
    pub tile: ProductTile,
    /// Reason for this tile.
    pub reason: TileReason,
}

/// Reason for the tile that large products use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TileReason {
    /// The first guess for the adapter's vendor: tiles were not timed, or could not be.
    Guessed,
    /// The fastest tile when the device opened; the times of all.
    Measured(Vec<TileTime>),
    /// The fastest tile when an earlier program opened this adapter, read from the user's cache folder.
    Kept,
    /// The tile was requested by a [`TilePreference`].
    Pinned,
}

impl fmt::Display for TileChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.tile)?;
        match &self.reason {
            TileReason::Guessed => f.write_str("(guessed by vendor)"),
            TileReason::Kept => f.write_str("(measured before, and kept)"),
            TileReason::Pinned => f.write_str("(pinned)"),
            TileReason::Measured(times) => {
                f.write_str("(measured")?;
                for (i, TileTime { tile, time }) in times.iter().enumerate() {
                    write!(f, "{} {tile} {time:.2?}", if i == 0 { ":" } else { "," })?;
                }
                f.write_str(")")
            }
        }
    }
}

/// Returns the tile with the shortest time; the first guess if no other is clearly faster.
fn fastest_tile(guess: ProductTile, times: &[TileTime]) -> ProductTile {
    let Some(fastest) = times.iter().min_by_key(|one| one.time) else { return guess };
    let keeps_guess =
        |one: &TileTime| one.tile == guess && fastest.time.as_secs_f64() >= MAX_SHARE_OF_GUESS * one.time.as_secs_f64();
    if times.iter().any(keeps_guess) { guess } else { fastest.tile }
}

/// Returns the first guess for an adapter: the largest tile where registers are many, and 64×64 on GPUs for telephones, on
/// integrated ones, and on those that a browser does not name. Estimates, measured on no GPU.
pub(crate) fn guess_tile(info: &wgpu::AdapterInfo) -> ProductTile {
    /// Vendors' numbers on PCI.
    const AMD: u32 = 0x1002;
    const NVIDIA: u32 = 0x10de;
    match (info.device_type, info.backend, info.vendor) {
        (wgpu::DeviceType::Cpu, _, _) | (_, _, AMD | NVIDIA) => ProductTile::Side128,
        (_, wgpu::Backend::Metal, _) => ProductTile::Rows128,
        _ => ProductTile::Side64,
    }
}

#[cfg(test)]
mod tests;
