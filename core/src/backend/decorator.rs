//! Conversion of a launch inside a decorator: a device that wraps another one, for example to count its launches.

use super::{Backend, Cast, Launch, MapOperands, OnDevice, Param, Slot, Store};
use crate::scaled::Scaled;

impl<'a, D: Backend + 'a> Launch<OnDevice<'a, D>> {
    /// Converts the launch for the device inside a decorator that has the same buffers and table.
    pub fn inside<B: Backend<Buffer = D::Buffer, Table = D::Table> + 'a>(self) -> Launch<OnDevice<'a, B>> {
        self.map(&mut Inside)
    }
}

/// Operand conversion for a decorator, which leaves every operand unchanged.
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
    fn cast(&mut self, Cast { table, from, to, detail }: Cast<'a, D>) -> Cast<'a, B> {
        Cast { table, from, to, detail }
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
