//! Where to run.

use crate::Failure;
#[cfg(feature = "wgpu")]
use gradscale::Wgpu;
use gradscale::{Cpu, core::backend::Backend};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::{fmt, str::FromStr};

/// A device by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The processor.
    Cpu,
    /// A GPU, by its number in the list of `gradscale devices`.
    #[cfg(feature = "wgpu")]
    Wgpu(usize),
}

/// What is to be done on a device, whichever it is.
pub trait Work {
    /// What comes of it.
    type Output;

    /// Does it.
    ///
    /// # Errors
    /// Its own, and the device's.
    fn on<B: Backend<Error: 'static> + 'static>(self, device: B) -> Result<Self::Output, Failure>;
}

impl Device {
    /// Opens the device and works on it; `threads` are the CPU's, 0 for one on each core.
    ///
    /// # Errors
    /// A device that cannot be opened, and those of the work.
    pub fn open<W: Work>(self, threads: usize, work: W) -> Result<W::Output, Failure> {
        match self {
            Self::Cpu => work.on(Cpu::new(threads).map_err(|error| Failure::at("--threads", error))?),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(index) => work.on(Wgpu::new(index).map_err(|error| Failure::at("--device", error))?),
        }
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cpu" => Ok(Self::Cpu),
            #[cfg(feature = "wgpu")]
            "wgpu" => Ok(Self::Wgpu(0)),
            #[cfg(feature = "wgpu")]
            _ if text.starts_with("wgpu:") => {
                text["wgpu:".len()..].parse().map(Self::Wgpu).map_err(|_| "needs a number behind wgpu:".to_owned())
            }
            _ => Err("is no device of this program; `gradscale devices` lists them".to_owned()),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(index) => write!(f, "wgpu:{index}"),
        }
    }
}

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
