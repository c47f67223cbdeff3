//! Operand types of a launch: during planning, during execution, and inside a decorator.

use super::{Backend, Launch, Param, Slot, Store};
use crate::scaled::Scaled;
use core::{fmt, marker::PhantomData};

/// Types that represent the operands of a [`Launch`]: device buffers during execution ([`OnDevice`]), buffer ids during
/// planning.
pub trait Operands {
    /// Type of a buffer that an operator reads.
    type Read;
    /// Buffer that is written without an epilogue: offsets, statistics, losses.
    type Write;
    /// Destination of results that pass through the epilogue.
    type Store;
    /// Terms of a sum, each with the slot of its exponent.
    type Terms;
    /// Gradients of which a norm is computed.
    type Gradients;
    /// Parameters that an optimizer updates.
    type Parameters;
    /// Table that an optimizer reads.
    type Table;
}

/// Operands in device memory.
pub struct OnDevice<'a, B>(PhantomData<&'a B>);

impl<'a, B: Backend + 'a> Operands for OnDevice<'a, B> {
    type Read = &'a B::Buffer;
    type Write = &'a mut B::Buffer;
    type Store = Store<'a, B>;
    type Terms = &'a [Scaled<&'a B::Buffer, Slot>];
    type Gradients = &'a [&'a B::Buffer];
    type Parameters = &'a mut [Param<'a, B::Buffer>];
    type Table = &'a B::Table;
}

/// Conversion of operands from one type to another, for example of buffer ids to buffers, or of a decorator's operands
/// to those of the decorated device.
pub trait MapOperands<From: Operands, To: Operands> {
    /// Converts an [`Operands::Read`].
    fn read(&mut self, read: From::Read) -> To::Read;
    /// Converts an [`Operands::Write`].
    fn write(&mut self, write: From::Write) -> To::Write;
    /// Converts an [`Operands::Store`].
    fn store(&mut self, store: From::Store) -> To::Store;
    /// Converts [`Operands::Terms`].
    fn terms(&mut self, terms: From::Terms) -> To::Terms;
    /// Converts [`Operands::Gradients`].
    fn gradients(&mut self, gradients: From::Gradients) -> To::Gradients;
    /// Converts [`Operands::Parameters`].
    fn parameters(&mut self, parameters: From::Parameters) -> To::Parameters;
    /// Converts an [`Operands::Table`].
    fn table(&mut self, table: From::Table) -> To::Table;
}

impl<'a, D: Backend + 'a> Launch<OnDevice<'a, D>> {
    /// Converts the launch for the device inside a decorator that has the same buffers and table.
    pub fn inside<B: Backend<Buffer = D::Buffer, Table = D::Table> + 'a>(self) -> Launch<OnDevice<'a, B>> {
        self.map(&mut Inside)
    }
}

/// Operand conversion that leaves every operand unchanged.
struct Inside;

impl<'a, D: Backend + 'a, B: Backend<Buffer = D::Buffer, Table = D::Table> + 'a>
    MapOperands<OnDevice<'a, D>, OnDevice<'a, B>> for Inside
{
    fn read(&mut self, read: &'a D::Buffer) -> &'a D::Buffer {
        read
    }
    fn write(&mut self, write: &'a mut D::Buffer) -> &'a mut D::Buffer {
        write
    }
    fn store(&mut self, store: Store<'a, D>) -> Store<'a, B> {
        let Store { y, table, from, to, detail, add } = store;
        Store { y, table, from, to, detail, add }
    }
    fn terms(&mut self, terms: &'a [Scaled<&'a D::Buffer, Slot>]) -> &'a [Scaled<&'a D::Buffer, Slot>] {
        terms
    }
    fn gradients(&mut self, gradients: &'a [&'a D::Buffer]) -> &'a [&'a D::Buffer] {
        gradients
    }
    fn parameters(&mut self, parameters: &'a mut [Param<'a, D::Buffer>]) -> &'a mut [Param<'a, D::Buffer>] {
        parameters
    }
    fn table(&mut self, table: &'a D::Table) -> &'a D::Table {
        table
    }
}

impl<B> fmt::Debug for OnDevice<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnDevice")
    }
}
