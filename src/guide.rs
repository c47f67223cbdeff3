//! The guide, as pages of the documentation.

#[doc = include_str!("../docs/guide/method.md")]
pub mod method {}

#[doc = include_str!("../docs/guide/when-to-use.md")]
pub mod when_to_use {}

#[doc = include_str!("../docs/guide/migrating-from-torch.md")]
pub mod migrating_from_torch {}

#[doc = include_str!("../docs/guide/pytorch-package.md")]
pub mod pytorch_package {}

#[doc = include_str!("../docs/guide/operators.md")]
pub mod operators {}

#[doc = include_str!("../docs/guide/paper-comparison.md")]
pub mod paper_comparison {}

#[doc = include_str!("../docs/guide/control.md")]
pub mod control {}

#[doc = include_str!("../docs/guide/extending.md")]
pub mod extending {}

#[doc = include_str!("../docs/guide/distributed.md")]
pub mod distributed {}

#[doc = include_str!("../docs/guide/eight-bits.md")]
pub mod eight_bits {}

#[doc = include_str!("../docs/guide/cost.md")]
pub mod cost {}

#[doc = include_str!("../docs/guide/integrations.md")]
pub mod integrations {}
