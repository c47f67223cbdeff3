//! GEMM microkernel of AMX: tiles of results that stay in the matrix unit over all segments.
//!
//! Four tiles of results at a time, 2 × 2, or 4 × 1 and 1 × 4 for few columns or rows. Each block of 32 steps takes ten
//! tile loads and 16 products. Loads, about 25 cycles each from L1, limit the kernel nearly as much as products, 16
//! cycles each.

use super::{Amx, K_BLOCK, TILE_DIM};
use core::{arch::asm, mem::offset_of};

/// Arguments of the microkernel: `acc[r][c] += Σ a[r][k] · b[k][c]` over all segments and their blocks of 32 steps.
#[derive(Clone, Copy, Debug)]
pub struct TileGemm<'a> {
    /// Upper bf16 parts of A; lower parts are `a_low` elements after them.
    pub a: &'a [u16],
    pub a_low: usize,
    /// Distances in A in elements: from row to row, and from block to block.
    pub a_row: usize,
    pub a_step: usize,
    /// Pairs of steps of B: upper parts; lower parts are `b_low` elements after them.
    pub b: &'a [u16],
    pub b_low: usize,
    /// Distances in B in elements: from pair to pair of steps (each with two elements for each column), and from block
    /// to block.
    pub b_row: usize,
    pub b_step: usize,
    pub k_segments: &'a [KSegment],
    pub rows: usize,
    pub columns: usize,
}

/// Segment of k in an AMX product: blocks that are evenly spaced in both operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct KSegment {
    /// Indices of the segment's first elements in A and B.
    pub a: usize,
    pub b: usize,
    pub blocks: usize,
}

/// Arguments of the AMX kernels, which their instructions read from memory.
#[repr(C, align(64))]
struct TileCall {
    /// Tile sizes in the layout of the processor: see [`tile_config`].
    sizes: [u8; 64],
    acc: *mut f32,
    /// 1 if the sums accumulate, 0 if they are overwritten.
    add: usize,
    /// Distances in bytes: to the next row and to the next tile below.
    acc_row: usize,
    acc_rows: usize,
    a: *const u16,
    a_step: usize,
    b: *const u16,
    b_step: usize,
    runs_end: *const KSegment,
    a_low: usize,
    b_low: usize,
    a_row: usize,
    b_row: usize,
}

impl Amx {
    /// Accumulates a product in sums whose rows are `acc_row` elements apart, or overwrites them. Within the 32 steps
    /// of a tile, even and odd steps are added separately. Blocks follow in order, each with its four products of
    /// parts.
    pub fn multiply(self, gemm: &TileGemm<'_>, add: bool, acc: &mut [f32], acc_row: usize) {
        if gemm.rows == 0 || gemm.columns == 0 || gemm.k_segments.is_empty() {
            return;
        }
        // The bounds check that makes the kernels sound.
        gemm.check_bounds(acc, acc_row);
        let mut call = TileCall {
            sizes: [0; 64],
            acc: core::ptr::null_mut(),
            add: usize::from(add),
            acc_row: 4 * acc_row,
            acc_rows: 4 * TILE_DIM * acc_row,
            a: core::ptr::null(),
            a_step: 2 * gemm.a_step,
            b: core::ptr::null(),
            b_step: 2 * gemm.b_step,
            runs_end: gemm.k_segments.as_ptr_range().end,
            a_low: 2 * gemm.a_low,
            b_low: 2 * gemm.b_low,
            a_row: 2 * gemm.a_row,
            b_row: 2 * gemm.b_row,
        };
        let (one_row, mut before) = (gemm.rows <= TILE_DIM, (0, 0));
        let mut c = 0;
        while c < gemm.columns {
            let columns = if one_row { strip_len(gemm.columns - c) } else { (gemm.columns - c).min(2 * TILE_DIM) };
            let mut r = 0;
            while r < gemm.rows {
                let rows =
                    if columns <= TILE_DIM { strip_len(gemm.rows - r) } else { (gemm.rows - r).min(2 * TILE_DIM) };
                if (rows, columns) != before {
                    (before, call.sizes) = ((rows, columns), tile_config(rows, columns));
                }
                call.acc = acc[r * acc_row + c..].as_mut_ptr();
                call.a = gemm.a.as_ptr().wrapping_add(r * gemm.a_row);
                call.b = gemm.b.as_ptr().wrapping_add(2 * c);
                let kernel = match (rows.div_ceil(TILE_DIM), columns.div_ceil(TILE_DIM)) {
                    (1, 1) => kernel_1x1,
                    (2, 1) => kernel_2x1,
                    (3, 1) => kernel_3x1,
                    (4, 1) => kernel_4x1,
                    (1, 2) => kernel_1x2,
                    (1, 3) => kernel_1x3,
                    (1, 4) => kernel_1x4,
                    (2, 2) => kernel_2x2,
                    (_, _) => unreachable!("a tile of {rows} × {columns}"),
                };
                // SAFETY: the token proves the instructions, the bounds were checked above, and no run is empty.
                unsafe { kernel(&call, gemm.k_segments) };
                r += rows;
            }
            c += columns;
        }
    }
}

impl TileGemm<'_> {
    /// Checks that the kernels stay inside the operands and `acc`; the product is not empty.
    ///
    /// # Panics
    /// If they do not.
    fn check_bounds(&self, acc: &[f32], acc_row: usize) {
        // Offset of the last step, saturating: an offset beyond usize is out of bounds as well.
        let last = |first: usize, steps: usize, step: usize| first.saturating_add((steps - 1).saturating_mul(step));
        assert!(last(self.columns, self.rows, acc_row) <= acc.len());
        for run in self.k_segments {
            assert!(run.blocks != 0);
            let end = last(last(run.a, self.rows, self.a_row), run.blocks, self.a_step);
            assert!(end.saturating_add(self.a_low).saturating_add(K_BLOCK) <= self.a.len());
            let end = last(last(run.b, K_BLOCK / 2, self.b_row), run.blocks, self.b_step);
            assert!(end.saturating_add(self.b_low).saturating_add(2 * self.columns) <= self.b.len());
        }
    }
}

/// Returns the length of the next strip of tiles: four, or three of which the last may be smaller.
fn strip_len(left: usize) -> usize {
    if left >= 4 * TILE_DIM { 4 * TILE_DIM } else { left.min(3 * TILE_DIM) }
}

/// Returns rows and row bytes of each tile: results in 0 to 3, rows of A in 4 and 5, columns of B in 6 and 7. The third
/// of three tiles in a strip may be smaller than the others, and has its own operand in 3.
#[expect(clippy::cast_possible_truncation, reason = "at most 64")]
fn tile_config(rows: usize, columns: usize) -> [u8; 64] {
    let mut sizes = [0; 64];
    sizes[0] = 1;
    let mut set = |tile: usize, rows: usize, bytes: usize| {
        sizes[16 + 2 * tile] = bytes as u8;
        sizes[48 + tile] = rows as u8;
    };
    let (row_tiles, column_tiles) = (rows.div_ceil(TILE_DIM), columns.div_ceil(TILE_DIM));
    let rows_of = |i: usize| TILE_DIM.min(rows - i * TILE_DIM);
    let bytes_of = |j: usize| 4 * TILE_DIM.min(columns - j * TILE_DIM);
    for i in 0..row_tiles {
        (0..column_tiles).for_each(|j| set(i * column_tiles + j, rows_of(i), bytes_of(j)));
    }
    // Both parts of a single tile have their own register.
    for i in 0..row_tiles.max(2) {
        let place = if row_tiles == 3 && i == 2 { 3 } else { 4 + i % 2 };
        set(place, rows_of(i.min(row_tiles - 1)), 2 * K_BLOCK);
    }
    for j in 0..column_tiles.max(2) {
        let place = if column_tiles == 3 && j == 2 { 3 } else { 6 + j % 2 };
        set(place, K_BLOCK / 2, bytes_of(j.min(column_tiles - 1)));
    }
    sizes
}

/// Macro: instruction that loads rows of A, from the address in `t`, to a tile.
macro_rules! a {
    ($tile:literal) => {
        concat!("tileloadd tmm", $tile, ", [{t} + {a_row}]")
    };
}

/// Macro: instruction that loads upper parts of columns of B to a tile, this number of bytes after the first.
macro_rules! b_high {
    ($tile:literal, $bytes:literal) => {
        concat!("tileloadd tmm", $tile, ", [{b} + {b_row} + ", $bytes, "]")
    };
}

/// Macro: instruction that loads lower parts of columns of B to a tile, this number of bytes after the first.
macro_rules! b_low {
    ($tile:literal, $bytes:literal) => {
        concat!("tileloadd tmm", $tile, ", [{u} + {b_row} + ", $bytes, "]")
    };
}

/// Macro: instruction that adds the product of two tiles to a third.
macro_rules! add {
    ($c:literal, $a:literal, $b:literal) => {
        concat!("tdpbf16ps tmm", $c, ", tmm", $a, ", tmm", $b)
    };
}

/// Macro: defines an AMX kernel from its tiles of results (number and distance from the first in rows of tiles and
/// bytes) and its instructions for a block. The products of parts are added in one order everywhere: both upper, upper
/// with lower, both lower, lower with upper.
macro_rules! kernel {
    ($name:ident: $([$($tile:literal $bytes:literal),*])*; $($line:expr),* $(,)?) => {
        /// AMX kernel for one arrangement of tiles: accumulates the product over all segments.
        ///
        /// # Safety
        /// The instructions, and a product inside its slices, with a run.
        unsafe fn $name(call: &TileCall, runs: &[KSegment]) {
            // SAFETY: the caller's promise. No register of tiles is in use: nothing else here knows them.
            unsafe {
                asm!(
                    "ldtilecfg [{call}]",
                    // All tiles are zeros now.
                    "cmp qword ptr [{call} + {add}], 0",
                    "je 2f",
                    "mov {n}, [{call} + {acc_row}]",
                    "mov {t}, [{call} + {acc}]",
                    $($(concat!("tileloadd tmm", $tile, ", [{t} + {n} + ", $bytes, "]"),)* "add {t}, [{call} + {acc_rows}]",)*
                    "2:",
                    "mov {a_row}, [{call} + {at_a_row}]",
                    "mov {b_row}, [{call} + {at_b_row}]",
                    "mov {rows}, {a_row}",
                    "shl {rows}, 4",
                    "3:",
                    "mov {a}, [{runs}]",
                    "add {a}, {a}",
                    "add {a}, [{call} + {at_a}]",
                    "mov {b}, [{runs} + 8]",
                    "add {b}, {b}",
                    "add {b}, [{call} + {at_b}]",
                    "mov {n}, [{runs} + 16]",
                    "4:",
                    "mov {u}, {b}",
                    "add {u}, [{call} + {at_b_low}]",
                    $($line,)*
                    "add {a}, [{call} + {a_step}]",
                    "add {b}, [{call} + {b_step}]",
                    "dec {n}",
                    "jnz 4b",
                    "add {runs}, 24",
                    "cmp {runs}, [{call} + {runs_end}]",
                    "jb 3b",
                    "mov {n}, [{call} + {acc_row}]",
                    "mov {t}, [{call} + {acc}]",
                    $($(concat!("tilestored [{t} + {n} + ", $bytes, "], tmm", $tile),)* "add {t}, [{call} + {acc_rows}]",)*
                    "tilerelease",
                    call = in(reg) core::ptr::from_ref(call),
                    runs = inout(reg) runs.as_ptr() => _,
                    a = out(reg) _,
                    b = out(reg) _,
                    t = out(reg) _,
                    u = out(reg) _,
                    n = out(reg) _,
                    a_row = out(reg) _,
                    b_row = out(reg) _,
                    rows = out(reg) _,
                    acc = const offset_of!(TileCall, acc),
                    add = const offset_of!(TileCall, add),
                    acc_row = const offset_of!(TileCall, acc_row),
                    acc_rows = const offset_of!(TileCall, acc_rows),
                    at_a = const offset_of!(TileCall, a),
                    at_b = const offset_of!(TileCall, b),
                    a_step = const offset_of!(TileCall, a_step),
                    b_step = const offset_of!(TileCall, b_step),
                    at_a_row = const offset_of!(TileCall, a_row),
                    at_b_row = const offset_of!(TileCall, b_row),
                    at_a_low = const offset_of!(TileCall, a_low),
                    at_b_low = const offset_of!(TileCall, b_low),
                    runs_end = const offset_of!(TileCall, runs_end),
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

kernel! {
    kernel_1x1: [0 0];
    b_high!(6, 0), b_low!(7, 0),
    "mov {t}, {a}", a!(4),
    add!(0, 4, 6), add!(0, 4, 7),
    "mov {t}, {a}", "add {t}, [{call} + {at_a_low}]", a!(4),
    add!(0, 4, 7), add!(0, 4, 6),
}

kernel! {
    kernel_2x1: [0 0] [1 0];
    b_high!(6, 0), b_low!(7, 0),
    "mov {t}, {a}", a!(4), "add {t}, {rows}", a!(5),
    add!(0, 4, 6), add!(1, 5, 6), add!(0, 4, 7), add!(1, 5, 7),
    "mov {t}, {a}", "add {t}, [{call} + {at_a_low}]", a!(4), "add {t}, {rows}", a!(5),
    add!(0, 4, 7), add!(1, 5, 7), add!(0, 4, 6), add!(1, 5, 6),
}

kernel! {
    kernel_3x1: [0 0] [1 0] [2 0];
    b_high!(6, 0), b_low!(7, 0),
    "mov {t}, {a}", a!(4), "add {t}, {rows}", a!(5),
    add!(0, 4, 6), add!(1, 5, 6), add!(0, 4, 7), add!(1, 5, 7),
    "mov {t}, {a}", "add {t}, [{call} + {at_a_low}]", a!(4), "add {t}, {rows}", a!(5),
    add!(0, 4, 7), add!(1, 5, 7), add!(0, 4, 6), add!(1, 5, 6),
    "mov {t}, {a}", "lea {t}, [{t} + {rows}*2]", a!(3),
    add!(2, 3, 6), add!(2, 3, 7),
    "mov {t}, {a}", "add {t}, [{call} + {at_a_low}]", "lea {t}, [{t} + {rows}*2]", a!(3),
    add!(2, 3, 7), add!(2, 3, 6),
}

kernel! {
    kernel_4x1: [0 0] [1 0] [2 0] [3 0];
    b_high!(6, 0), b_low!(7, 0),
    "mov {t}, {a}", a!(4), "add {t}, {rows}", a!(5),
    add!(0, 4, 6), add!(1, 5, 6), add!(0, 4, 7), add!(1, 5, 7),
    "mov {t}, {a}", "add {t}, [{call} + {at_a_low}]", a!(4), "add {t}, {rows}", a!(5),
    add!(0, 4, 7), add!(1, 5, 7), add!(0, 4, 6), add!(1, 5, 6),
    "mov {t}, {a}", "lea {t}, [{t} + {rows}*2]", a!(4), "add {t}, {rows}", a!(5),
    add!(2, 4, 6), add!(3, 5, 6), add!(2, 4, 7), add!(3, 5, 7),
    "mov {t}, {a}", "add {t}, [{call} + {at_a_low}]", "lea {t}, [{t} + {rows}*2]", a!(4), "add {t}, {rows}", a!(5),
    add!(2, 4, 7), add!(3, 5, 7), add!(2, 4, 6), add!(3, 5, 6),
}

kernel! {
    kernel_1x2: [0 0, 1 64];
    "mov {t}, {a}", a!(4), "mov {t}, {a}", "add {t}, [{call} + {at_a_low}]", a!(5),
    b_high!(6, 0), b_high!(7, 64), add!(0, 4, 6), add!(1, 4, 7),
    b_low!(6, 0), b_low!(7, 64), add!(0, 4, 6), add!(1, 4, 7),
    add!(0, 5, 6), add!(1, 5, 7),
    b_high!(6, 0), b_high!(7, 64), add!(0, 5, 6), add!(1, 5, 7),
}

kernel! {
    kernel_1x3: [0 0, 1 64, 2 128];
    "mov {t}, {a}", a!(4), "mov {t}, {a}", "add {t}, [{call} + {at_a_low}]", a!(5),
    b_high!(6, 0), b_high!(7, 64), add!(0, 4, 6), add!(1, 4, 7),
    b_low!(6, 0), b_low!(7, 64), add!(0, 4, 6), add!(1, 4, 7),
    add!(0, 5, 6), add!(1, 5, 7),
    b_high!(6, 0), b_high!(7, 64), add!(0, 5, 6), add!(1, 5, 7),
    b_high!(3, 128), add!(2, 4, 3),
    b_low!(3, 128), add!(2, 4, 3),
    add!(2, 5, 3),
    b_high!(3, 128), add!(2, 5, 3),
}

kernel! {
    kernel_1x4: [0 0, 1 64, 2 128, 3 192];
    "mov {t}, {a}", a!(4), "mov {t}, {a}", "add {t}, [{call} + {at_a_low}]", a!(5),
    b_high!(6, 0), b_high!(7, 64), add!(0, 4, 6), add!(1, 4, 7),
    b_low!(6, 0), b_low!(7, 64), add!(0, 4, 6), add!(1, 4, 7),
    add!(0, 5, 6), add!(1, 5, 7),
    b_high!(6, 0), b_high!(7, 64), add!(0, 5, 6), add!(1, 5, 7),
    b_high!(6, 128), b_high!(7, 192), add!(2, 4, 6), add!(3, 4, 7),
    b_low!(6, 128), b_low!(7, 192), add!(2, 4, 6), add!(3, 4, 7),
    add!(2, 5, 6), add!(3, 5, 7),
    b_high!(6, 128), b_high!(7, 192), add!(2, 5, 6), add!(3, 5, 7),
}

kernel! {
    kernel_2x2: [0 0, 1 64] [2 0, 3 64];
    "mov {t}, {a}", a!(4), b_high!(6, 0), add!(0, 4, 6), b_high!(7, 64), add!(1, 4, 7),
    "add {t}, {rows}", a!(5), add!(2, 5, 6), b_low!(6, 0), add!(3, 5, 7), b_low!(7, 64),
    add!(0, 4, 6), add!(1, 4, 7),
    "mov {t}, {a}", "add {t}, [{call} + {at_a_low}]", a!(4), add!(2, 5, 6), add!(3, 5, 7),
    "add {t}, {rows}", a!(5), add!(0, 4, 6), add!(1, 4, 7), add!(2, 5, 6), b_high!(6, 0), add!(3, 5, 7), b_high!(7, 64),
    add!(0, 4, 6), add!(1, 4, 7), add!(2, 5, 6), add!(3, 5, 7),
}
