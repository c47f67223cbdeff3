//! Operand types of a launch: during planning, and during execution on a device.

use super::{Backend, Cast, Param, Slot, Store};
use crate::scaled::Scaled;
use core::{fmt, marker::PhantomData};

/// Types that represent the operands of a [`super::Launch`]: device buffers during execution ([`OnDevice`]), buffer ids during
/// planning.
pub trait Operands {
    /// Type of a buffer that an operator reads.
    type Read;
    /// Type of a buffer that is written without an epilogue: offsets, statistics, losses.
    type Write;
    /// Type of the destination of results that pass through the store's epilogue.
    type Store;
    /// Type of the cast of values that are not stored.
    type Cast;
    /// Type of the terms of a sum, each with the slot of its exponent.
    type Terms;
    /// Type of the list of gradients of which a norm is computed.
    type Gradients;
    /// Type of the list of parameters that an optimizer updates.
    type Parameters;
    /// Type of the table of hyperparameters and statistics rows that an optimizer reads.
    type Table;
}

/// Family of operand types for a launch whose operands are buffers in the memory of device `B`.
pub struct OnDevice<'a, B>(PhantomData<&'a B>);

impl<'a, B: Backend + 'a> Operands for OnDevice<'a, B> {
    type Read = &'a B::Buffer;
    type Write = &'a mut B::Buffer;
    type Store = Store<'a, B>;
    type Cast = Cast<'a, B>;
    type Terms = &'a [Scaled<&'a B::Buffer, Slot>];
    type Gradients = &'a [&'a B::Buffer];
    type Parameters = &'a mut [Param<'a, B::Buffer>];
    type Table = &'a B::Table;
}

/// Conversion of operands from one type to another, for example of buffer ids to buffers, or of a decorator's operands
/// to those of the decorated device.
pub trait MapOperands<From: Operands, To: Operands> {
    /// Converts a buffer that the operator reads to the type of the other family.
    fn read(&mut self, read: From::Read) -> To::Read;
    /// Converts a buffer that is written without an epilogue to the type of the other family.
    fn write(&mut self, write: From::Write) -> To::Write;
    /// Converts the destination of a store to the type of the other family.
    fn store(&mut self, store: From::Store) -> To::Store;
    /// Converts the cast of values that are not stored to the type of the other family.
    fn cast(&mut self, cast: From::Cast) -> To::Cast;
    /// Converts the terms of a sum to the type of the other family.
    fn terms(&mut self, terms: From::Terms) -> To::Terms;
    /// Converts the list of gradients for a norm to the type of the other family.
    fn gradients(&mut self, gradients: From::Gradients) -> To::Gradients;
    /// Converts the list of parameters for an optimizer to the type of the other family.
    fn parameters(&mut self, parameters: From::Parameters) -> To::Parameters;
    /// Converts the table that an optimizer reads to the type of the other family.
    fn table(&mut self, table: From::Table) -> To::Table;
}

impl<B> fmt::Debug for OnDevice<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnDevice")
    }
}
