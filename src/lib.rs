#![doc = include_str!("README.md")]
#![forbid(unsafe_code)]

pub mod boxes;
mod checkpoint;
mod configuration;
pub mod data;
mod device;
pub mod distributed;
mod error;
mod exec;
mod file;
mod graph;
pub mod guide;
mod import;
mod method;
pub mod metrics;
pub mod models;
pub mod nn;
#[cfg(feature = "onnx")]
mod onnx;
mod ops;
pub mod optim;
mod parameters;
pub mod replay;
mod shape;
pub mod sites;
mod suggestion;
mod tensor;
mod train;
pub mod window;

/// Tests of the examples in the README of the repository, which packages lack.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme_of_repository {}

pub use checkpoint::{CheckpointError, Difference, checkpoint_metadata};
#[cfg(feature = "wgpu")]
pub use device::{Adapter, Wgpu, WgpuError, adapters, adapters_async};
#[cfg(any(feature = "cpu", feature = "wgpu", feature = "cuda"))]
pub use device::{AnyDevice, AnyDeviceError};
#[cfg(feature = "cpu")]
pub use device::{Cpu, CpuError, Isa};
#[cfg(feature = "cuda")]
pub use device::{Cuda, CudaError};
pub use device::{DeviceName, DeviceNameError};
pub use error::{Error, OperandMismatch, TraceError, TraceErrorKind};
pub use exec::{LaunchTime, MemoryReport};
pub use file::write_file;
pub use gradscale_core;
pub use graph::{PlanRow, Tape, Var};
pub use half;
pub use import::{ImportError, Imported, TorchModule};
pub use method::{
    BASELINES, Baseline, BlockScaling, ForwardScaling, GradientScaling, Layers, METHODS, Method, MethodError, Preset,
    Products, Scaling, SharedLayers, StoreFormats,
};
#[cfg(feature = "onnx")]
pub use onnx::onnx_metadata;
pub use ops::{AnchorTruth, AttentionMask, CrossEntropy, CustomGradient, CustomOperator, MultiBox, RegionTruth};
pub use parameters::{Fan, Init, LoadError, Parameter, Parameters, Scope};
pub use shape::Shape;
pub use sites::{Cause, SiteReport};
pub use tensor::{Input, InputType, Tensor};
pub use train::{
    Attempt, CheckpointFile, EvaluationWeights, ExponentsAfter, Gradients, Inputs, Model, Named, NonBlocking,
    Observation, Operands, Pass, Prefetched, Program, ProgramKind, Repeated, Skipped, Source, StepOutcome, Trainer,
    TrainerOptions, UnusableLoss, forward_sites, gradient_errors, measure_reduce_modes, unused_restored_sites,
};
