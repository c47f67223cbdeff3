//! Names of devices, as people write them in arguments and settings.

use std::{fmt, str::FromStr};

/// Device that is named at run time: `cpu`, `wgpu`, `cuda`, or one of several as in `cuda:1`. Backends that this build
/// lacks can be named too; opening such a device is an error that names the missing feature.
///
/// ```
/// use gradscale::DeviceName;
/// assert_eq!("cuda:1".parse(), Ok(DeviceName::Cuda(1)));
/// assert_eq!("cpu:4".parse(), Ok(DeviceName::Cpu { threads: 4 }));
/// let error = "gpu".parse::<DeviceName>().unwrap_err();
/// assert_eq!(error.to_string(), "no device is called gpu; names are cpu, wgpu and cuda, with :NUMBER if wanted");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceName {
    /// CPU of the machine: `cpu`, or `cpu:4` with 4 threads.
    Cpu {
        /// Number of threads; 0 for one on each core.
        threads: usize,
    },
    /// GPU of the wgpu backend, by its index in the list of adapters: `wgpu` for the first, `wgpu:1`.
    Wgpu(usize),
    /// NVIDIA GPU, by its index: `cuda` for the first, `cuda:1`.
    Cuda(usize),
}

/// Reason why a text names no device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceNameError {
    /// The text before the colon is not the name of a backend; it is the whole text.
    Backend(String),
    /// The text after the colon is not a number; it is the whole text.
    Number(String),
}

impl fmt::Display for DeviceNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(text) => {
                write!(f, "no device is called {text}; names are cpu, wgpu and cuda, with :NUMBER if wanted")
            }
            Self::Number(text) => write!(f, "{text} needs a whole number after the colon, as in cuda:1"),
        }
    }
}

impl std::error::Error for DeviceNameError {}

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(text: &str) -> Result<Self, DeviceNameError> {
        let (backend, number) = text.split_once(':').map_or((text, None), |(backend, number)| (backend, Some(number)));
        let name: fn(usize) -> Self = match backend {
            "cpu" => |threads| Self::Cpu { threads },
            "wgpu" => Self::Wgpu,
            "cuda" => Self::Cuda,
            _ => return Err(DeviceNameError::Backend(text.to_owned())),
        };
        // `parse` also accepts a plus sign.
        let digits = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit());
        match number.map(|number| (digits(number), number.parse())) {
            None => Ok(name(0)),
            Some((true, Ok(number))) => Ok(name(number)),
            Some((false, _) | (_, Err(_))) => Err(DeviceNameError::Number(text.to_owned())),
        }
    }
}

/// Writes the name so that it can be parsed; numbers that are 0 are left out.
impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (backend, number) = match *self {
            Self::Cpu { threads } => ("cpu", threads),
            Self::Wgpu(index) => ("wgpu", index),
            Self::Cuda(index) => ("cuda", index),
        };
        if number == 0 { f.write_str(backend) } else { write!(f, "{backend}:{number}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for (text, name) in [
            ("cpu", DeviceName::Cpu { threads: 0 }),
            ("cpu:3", DeviceName::Cpu { threads: 3 }),
            ("wgpu", DeviceName::Wgpu(0)),
            ("wgpu:12", DeviceName::Wgpu(12)),
            ("cuda", DeviceName::Cuda(0)),
            ("cuda:1", DeviceName::Cuda(1)),
        ] {
            assert_eq!((text.parse(), name.to_string().as_str()), (Ok(name), text));
        }
        assert_eq!("cuda:0".parse(), Ok(DeviceName::Cuda(0)));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "gpu", "CPU", " cpu", "cuda1", "cpu4", "mps:0"] {
            assert_eq!(text.parse::<DeviceName>(), Err(DeviceNameError::Backend(text.to_owned())), "{text}");
        }
        for text in ["cpu:", "cuda:-1", "cuda:+1", "cuda:one", "wgpu:1:2", "cuda:99999999999999999999"] {
            assert_eq!(text.parse::<DeviceName>(), Err(DeviceNameError::Number(text.to_owned())), "{text}");
        }
    }
}
