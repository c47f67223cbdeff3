//! Softmax of rows, and its gradient. A row is computed in place in the block that is stored.

use crate::{Cpu, Memory, arch::LANES, elementwise::load_f32, threading::Cost};
use gradscale_core::{
    backend::Store,
    ops::{Softmax, SoftmaxColumns},
};

/// Returns the length of a row's sequence; 0 if there are no lengths.
fn length_of_row(p: &Softmax, selection: Option<&Memory>, row: usize) -> u32 {
    let rows = p.shape()[1] as usize;
    match (p.read(), selection) {
        (SoftmaxColumns::Within, Some(lengths)) => lengths.integer(row / rows),
        (SoftmaxColumns::All | SoftmaxColumns::Causal | SoftmaxColumns::Within | SoftmaxColumns::Masked, _) => 0,
    }
}

/// Returns the number of columns that are computed for a row that reads `end` of `columns`: whole vectors if there are
/// as many, because those behind the last take as long as several.
fn computed_columns(end: usize, columns: usize) -> usize {
    end.next_multiple_of(LANES).min(columns)
}

impl Cpu {
    pub(crate) fn run_softmax(&self, p: &Softmax, x: &Memory, selection: Option<&Memory>, y: Store<'_, Self>) {
        let (isa, rows, columns) = (self.isa(), p.rows() as usize, p.shape()[2] as usize);
        let mask = selection.filter(|_| p.read() == SoftmaxColumns::Masked);
        self.store_rows([rows, 1, columns], None, Cost::elements(rows * columns), y, || {
            let mut mask_row = self.workspace(if mask.is_some() { columns } else { 0 });
            move |r, row: &mut [f32]| {
                #[expect(clippy::cast_possible_truncation, reason = "below the number of elements")]
                let end = p.columns_of_row(r as u32, length_of_row(p, selection, r)) as usize;
                load_f32(isa, x, r * columns, &mut row[..end]);
                let (row, hidden) = row.split_at_mut(computed_columns(end, columns));
                hidden.fill(0.0);
                row[end..].fill(f32::NEG_INFINITY);
                if let Some(mask) = mask {
                    load_f32(isa, mask, r * columns, &mut mask_row);
                    isa.zip(row, &mask_row, |x, mask| if mask > 0.0 { x } else { f32::NEG_INFINITY });
                }
                if p.is_logarithm() {
                    isa.log_softmax(row);
                } else {
                    isa.softmax(row);
                }
                // Hidden columns are 0 also where the row is NaN, for example because it has no others.
                row[end..].fill(0.0);
                if mask.is_some() {
                    isa.zip(row, &mask_row, |y, mask| if mask > 0.0 { y } else { 0.0 });
                }
            }
        });
    }

    pub(crate) fn run_softmax_vjp(&self, p: &Softmax, y: &Memory, dy: &Memory, dx: Store<'_, Self>) {
        let (isa, rows, columns) = (self.isa(), p.rows() as usize, p.shape()[2] as usize);
        self.store_rows([rows, 1, columns], None, Cost::elements(rows * columns), dx, || {
            let mut y_row = self.workspace(columns);
            move |r, row: &mut [f32]| {
                // Without lengths, and with more columns than the row has read, because the weights there are 0.
                #[expect(clippy::cast_possible_truncation, reason = "below the number of elements")]
                let end = p.columns_of_row(r as u32, p.shape()[2]) as usize;
                let (row, hidden) = row.split_at_mut(computed_columns(end, columns));
                hidden.fill(0.0);
                load_f32(isa, dy, r * columns, row);
                let y_row = &mut y_row[..row.len()];
                load_f32(isa, y, r * columns, y_row);
                if p.is_logarithm() {
                    isa.log_softmax_vjp(y_row, row);
                } else {
                    isa.softmax_vjp(y_row, row);
                }
            }
        });
    }
}
