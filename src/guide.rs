//! The guide.

#[doc = include_str!("../docs/guide/method.md")]
pub mod method {}

#[doc = include_str!("../docs/guide/when.md")]
pub mod when {}

#[doc = include_str!("../docs/guide/torch.md")]
pub mod torch {}

#[doc = include_str!("../docs/guide/pytorch.md")]
pub mod pytorch {}

#[doc = include_str!("../docs/guide/operators.md")]
pub mod operators {}

#[doc = include_str!("../docs/guide/authors.md")]
pub mod authors {}

#[doc = include_str!("../docs/guide/control.md")]
pub mod control {}

#[doc = include_str!("../docs/guide/own.md")]
pub mod own {}

#[doc = include_str!("../docs/guide/machines.md")]
pub mod machines {}

#[doc = include_str!("../docs/guide/cost.md")]
pub mod cost {}

#[doc = include_str!("../docs/guide/runtimes.md")]
pub mod runtimes {}
