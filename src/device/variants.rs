//! One device of any backend, with its buffers, tables, recordings and errors: an enum of each, with a variant for each
//! backend of this build.

use super::DeviceName;
#[cfg(feature = "cpu")]
use super::{Cpu, CpuError};
#[cfg(feature = "cuda")]
use super::{Cuda, CudaError};
#[cfg(feature = "wgpu")]
use super::{Wgpu, WgpuError};
use gradscale_core::backend::{self, Backend, Buffer, DType, ErrorKind};
use std::fmt;

/// Backend that is a variant of [`AnyDevice`]: it finds its own part in the enums.
///
/// A part of another backend is a use of a buffer or table on a device that did not allocate it, about which the
/// contract of backends promises nothing. It panics with a sentence.
pub(super) trait Variant: Backend {
    fn own_buffer(any: &AnyBuffer) -> &Self::Buffer;
    fn own_buffer_mut(any: &mut AnyBuffer) -> &mut Self::Buffer;
    fn own_table(any: &AnyTable) -> &Self::Table;
    fn own_table_mut(any: &mut AnyTable) -> &mut Self::Table;
    fn own_recording(any: &AnyRecording) -> &Self::Recording;
}

const OTHER_DEVICE: &str = "an operand was allocated by another device";

macro_rules! variants {
    ($($feature:literal $variant:ident $error:ident $parts:literal),*) => {
        /// Device whose backend is chosen at run time. It computes the same bits as the backend itself.
        ///
        /// ```
        /// use gradscale::{AnyDevice, DeviceName, Input, Method, Parameters, Trainer};
        /// use gradscale::{nn::{Linear, Module}, optim::Sgd};
        ///
        /// let name: DeviceName = "cpu".parse()?; // or "wgpu", "cuda:1": from an argument or a file
        /// let mut parameters = Parameters::seeded(0);
        /// let net = Linear::new(&mut parameters.at("net"), 2, 2);
        /// let mut trainer = Trainer::new(AnyDevice::open(name)?, parameters, Sgd::new(0.5), Method::mixed())?;
        /// let batch = [Input::f32([2, 2], &[1.0, 0.0, 0.0, 1.0]), Input::u8([2], &[0, 1])];
        /// let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels))?;
        /// assert!(trainer.step(gradients)?.skipped.is_none());
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        ///
        /// Conversions from the backends' own types take a device with special settings:
        /// `AnyDevice::from(Cpu::with_isa(1, isa)?)`.
        #[derive(Debug)]
        #[non_exhaustive]
        // A program has one device, which is not moved after it has been opened.
        #[allow(clippy::large_enum_variant)]
        pub enum AnyDevice {
            $(
                #[doc = concat!("Device of the ", $parts, ".")]
                #[cfg(feature = $feature)]
                $variant($variant),
            )*
        }

        /// Buffer of [`AnyDevice`].
        #[derive(Debug)]
        pub enum AnyBuffer {
            $(
                #[doc = concat!("Buffer of the ", $parts, ".")]
                #[cfg(feature = $feature)]
                $variant(<$variant as Backend>::Buffer),
            )*
        }

        /// Table of [`AnyDevice`]: exponents, hyperparameters and statistics rows.
        #[derive(Debug)]
        pub enum AnyTable {
            $(
                #[doc = concat!("Table of the ", $parts, ".")]
                #[cfg(feature = $feature)]
                $variant(<$variant as Backend>::Table),
            )*
        }

        /// Recorded step of [`AnyDevice`].
        #[derive(Debug)]
        pub enum AnyRecording {
            $(
                #[doc = concat!("Recorded step of the ", $parts, ".")]
                #[cfg(feature = $feature)]
                $variant(<$variant as Backend>::Recording),
            )*
        }

        /// Error of [`AnyDevice`]: the error of its backend, or the reason why it was not opened. [`fmt::Debug`] writes
        /// the sentence of [`fmt::Display`].
        #[non_exhaustive]
        pub enum AnyDeviceError {
            $(
                #[doc = concat!("Error of the ", $parts, ".")]
                #[cfg(feature = $feature)]
                $variant($error),
            )*
            /// This build lacks the backend of the device.
            NotBuilt(DeviceName),
            /// The device does not implement the operator with this name.
            Unsupported(&'static str),
        }

        impl fmt::Display for AnyDeviceError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(error) => write!(f, "{error}"),
                    )*
                    Self::NotBuilt(name) => {
                        let text = name.to_string();
                        let feature = text.split(':').next().unwrap_or_default();
                        write!(f, "{name}: this build of gradscale lacks the feature {feature}")
                    }
                    Self::Unsupported(operator) => write!(f, "the device has no operator {operator}"),
                }
            }
        }

        impl std::error::Error for AnyDeviceError {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(error) => error.source(),
                    )*
                    Self::NotBuilt(_) | Self::Unsupported(_) => None,
                }
            }
        }

        impl backend::Error for AnyDeviceError {
            fn kind(&self) -> ErrorKind {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(error) => error.kind(),
                    )*
                    Self::NotBuilt(_) => ErrorKind::Other,
                    Self::Unsupported(_) => ErrorKind::Unsupported,
                }
            }

            fn unsupported(operator: &'static str) -> Self {
                Self::Unsupported(operator)
            }
        }

        impl Buffer for AnyBuffer {
            fn dtype(&self) -> DType {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(buffer) => buffer.dtype(),
                    )*
                }
            }

            fn len(&self) -> usize {
                match self {
                    $(
                        #[cfg(feature = $feature)]
                        Self::$variant(buffer) => buffer.len(),
                    )*
                }
            }
        }

        $(
            // A build with one backend has enums with one variant.
            #[allow(irrefutable_let_patterns)]
            #[cfg(feature = $feature)]
            impl Variant for $variant {
                fn own_buffer(any: &AnyBuffer) -> &Self::Buffer {
                    let AnyBuffer::$variant(own) = any else { panic!("{OTHER_DEVICE}") };
                    own
                }
                fn own_buffer_mut(any: &mut AnyBuffer) -> &mut Self::Buffer {
                    let AnyBuffer::$variant(own) = any else { panic!("{OTHER_DEVICE}") };
                    own
                }
                fn own_table(any: &AnyTable) -> &Self::Table {
                    let AnyTable::$variant(own) = any else { panic!("{OTHER_DEVICE}") };
                    own
                }
                fn own_table_mut(any: &mut AnyTable) -> &mut Self::Table {
                    let AnyTable::$variant(own) = any else { panic!("{OTHER_DEVICE}") };
                    own
                }
                fn own_recording(any: &AnyRecording) -> &Self::Recording {
                    let AnyRecording::$variant(own) = any else { panic!("{OTHER_DEVICE}") };
                    own
                }
            }

            #[cfg(feature = $feature)]
            impl From<$variant> for AnyDevice {
                fn from(device: $variant) -> Self {
                    Self::$variant(device)
                }
            }

            #[cfg(feature = $feature)]
            impl From<$error> for AnyDeviceError {
                fn from(error: $error) -> Self {
                    Self::$variant(error)
                }
            }
        )*
    };
}

variants!("cpu" Cpu CpuError "CPU backend", "wgpu" Wgpu WgpuError "wgpu backend", "cuda" Cuda CudaError "CUDA backend");

impl AnyDevice {
    /// Opens the device with this name.
    ///
    /// # Errors
    /// [`AnyDeviceError::NotBuilt`] for a backend that this build lacks; a device that the machine lacks or that cannot
    /// be opened.
    pub fn open(name: DeviceName) -> Result<Self, AnyDeviceError> {
        match name {
            #[cfg(feature = "cpu")]
            DeviceName::Cpu { threads } => Ok(Self::Cpu(Cpu::new(threads)?)),
            #[cfg(feature = "wgpu")]
            DeviceName::Wgpu(index) => Ok(Self::Wgpu(Wgpu::new(index)?)),
            #[cfg(feature = "cuda")]
            DeviceName::Cuda(index) => Ok(Self::Cuda(Cuda::open(index)?)),
            #[cfg(not(feature = "cpu"))]
            DeviceName::Cpu { .. } => Err(AnyDeviceError::NotBuilt(name)),
            #[cfg(not(feature = "wgpu"))]
            DeviceName::Wgpu(_) => Err(AnyDeviceError::NotBuilt(name)),
            #[cfg(not(feature = "cuda"))]
            DeviceName::Cuda(_) => Err(AnyDeviceError::NotBuilt(name)),
        }
    }
}

impl fmt::Debug for AnyDeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
