//! Gather and scatter of rows by index (embedding lookup and its gradient).

use crate::{Cpu, Memory, elementwise::load_f32, threading::Cost};
use gradscale_core::{
    backend::Store,
    ops::{GatherScatter, Rows},
};

impl Cpu {
    pub(crate) fn run_rows(&self, p: &Rows, way: GatherScatter, x: &Memory, index: &Memory, y: Store<'_, Self>) {
        let [count, table, width] = [p.count(), p.table(), p.width()].map(|size| size as usize);
        match way {
            GatherScatter::Gather => self.store_rows([count, 1, width], None, Cost::elements(count * width), y, || {
                |i, values: &mut [f32]| {
                    let row = index.integer(i) as usize;
                    if row < table {
                        load_f32(self.isa(), x, row * width, values);
                    } else {
                        values.fill(0.0);
                    }
                }
            }),
            GatherScatter::Scatter => {
                // For each row of the table the indices that refer to it, in order.
                let mut named = vec![Vec::new(); table];
                for i in 0..count {
                    if let Some(list) = named.get_mut(index.integer(i) as usize) {
                        list.push(i);
                    }
                }
                self.store_rows([table, 1, width], None, Cost::elements((count + table) * width), y, || {
                    let (mut values, named) = (self.workspace(width), &named);
                    move |row, sums: &mut [f32]| {
                        sums.fill(0.0);
                        for &i in &named[row] {
                            load_f32(self.isa(), x, i * width, &mut values);
                            sums.iter_mut().zip(values.iter()).for_each(|(sum, &v)| *sum += v);
                        }
                    }
                });
            }
        }
    }
}
