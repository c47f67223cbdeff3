//! Devices: parsing, opening and generic work on them.

use crate::Failure;
#[cfg(feature = "cuda")]
use crate::ranks;
#[cfg(feature = "cuda")]
use gradscale::Cuda;
#[cfg(feature = "wgpu")]
use gradscale::Wgpu;
use gradscale::{Cpu, gradscale_core::backend::Backend};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr};

/// Device that the user can name: the CPU or a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The CPU of the machine.
    Cpu,
    /// GPU of the wgpu backend, by its number in the list of `gradscale devices`.
    #[cfg(feature = "wgpu")]
    Wgpu(usize),
    /// NVIDIA GPU, by its number.
    #[cfg(feature = "cuda")]
    Cuda(usize),
}

/// Trait of generic work that can run on a device of any backend.
pub trait Work {
    /// Result type of the generic work.
    type Output;

    /// Runs the work on a device and returns its result.
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
            #[cfg(feature = "cuda")]
            Self::Cuda(index) => {
                work.on(Cuda::open(ranks::gpu(index, Cuda::count())).map_err(|error| Failure::at("--device", error))?)
            }
        }
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, index) = text.split_once(':').map_or((text, None), |(kind, index)| (kind, Some(index)));
        // Of devices that there can be several of.
        #[cfg(any(feature = "wgpu", feature = "cuda"))]
        let number = || match index.unwrap_or("0").parse() {
            Ok(number) => Ok(number),
            Err(_) => Err(format!("needs a number after {kind}:")),
        };
        match (kind, index) {
            ("cpu", None) => Ok(Self::Cpu),
            #[cfg(feature = "wgpu")]
            ("wgpu", _) => number().map(Self::Wgpu),
            #[cfg(feature = "cuda")]
            ("cuda", _) => number().map(Self::Cuda),
            #[cfg(not(feature = "wgpu"))]
            ("wgpu", _) => Err("this program was built without wgpu; build it with --features wgpu".to_owned()),
            #[cfg(not(feature = "cuda"))]
            ("cuda", _) => Err("this program was built without CUDA; build it with --features cuda".to_owned()),
            _ => Err("is not a device of this program; `gradscale devices` lists them".to_owned()),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(index) => write!(f, "wgpu:{index}"),
            #[cfg(feature = "cuda")]
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Device {
    /// Reads a device; one that this program lacks becomes the CPU, because a network can run anywhere.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(String::deserialize(deserializer)?.parse().unwrap_or(Self::Cpu))
    }
}
