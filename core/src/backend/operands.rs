//! What the operands of a launch are: where it is planned, where it runs, inside of a decorator.

use super::{Backend, Launch, Param, Slot, Store};
use crate::scaled::Scaled;
use core::{fmt, marker::PhantomData};

/// What stands for the operands of a [`Launch`]: buffers where it runs ([`OnDevice`]), their numbers where it is planned.
pub trait Operands {
    /// A buffer that is read.
    type Read;
    /// A buffer that is written as it is, without an epilogue: offsets, statistics, losses.
    type Write;
    /// Where results go through the epilogue.
    type Store;
    /// The terms of a sum, each with the slot of its exponent.
    type Terms;
    /// The gradients of which a norm is taken.
    type Gradients;
    /// Parameters that are updated.
    type Parameters;
    /// The table that an update looks into.
    type Table;
}

/// Operands that lie on a device.
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

/// How operands of one kind become those of another: numbers of buffers become buffers, a decorator's become those of
/// what it decorates.
pub trait MapOperands<From: Operands, To: Operands> {
    /// [`Operands::Read`].
    fn read(&mut self, read: From::Read) -> To::Read;
    /// [`Operands::Write`].
    fn write(&mut self, write: From::Write) -> To::Write;
    /// [`Operands::Store`].
    fn store(&mut self, store: From::Store) -> To::Store;
    /// [`Operands::Terms`].
    fn terms(&mut self, terms: From::Terms) -> To::Terms;
    /// [`Operands::Gradients`].
    fn gradients(&mut self, gradients: From::Gradients) -> To::Gradients;
    /// [`Operands::Parameters`].
    fn parameters(&mut self, parameters: From::Parameters) -> To::Parameters;
    /// [`Operands::Table`].
    fn table(&mut self, table: From::Table) -> To::Table;
}

impl<'a, D: Backend + 'a> Launch<OnDevice<'a, D>> {
    /// The same for the device inside of a decorator.
    pub fn inside<B: Backend<Buffer = D::Buffer, Table = D::Table> + 'a>(self) -> Launch<OnDevice<'a, B>> {
        self.map(&mut Inside)
    }
}

/// Operands that stay what they are.
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
