//! Formats in which the values of slots are stored.

use super::{Sites, SlotEntry, SlotKind};
use crate::{BlockScaling, GradientScaling, Products, Scaling, StoreFormats};
use gradscale_core::{backend::Slot, stats::Stats, store_format::StoreFormat};
use std::{borrow::Cow, iter::repeat};

impl Sites {
    /// Returns the format in which the method stores values of such slots.
    pub(crate) const fn format_of(&self, kind: SlotKind) -> StoreFormat {
        let formats = match &self.scaling {
            Scaling::Loss(_) => return StoreFormat::Fp16,
            Scaling::Gradient(GradientScaling { formats, .. }) => *formats,
            Scaling::Blocks(blocks) => blocks.formats(),
        };
        match kind {
            SlotKind::Site => formats.gradient,
            SlotKind::Forward => formats.activation,
            SlotKind::Weight => formats.weight,
            SlotKind::Reserved | SlotKind::Parameter | SlotKind::Derived => StoreFormat::Fp16,
        }
    }

    /// Returns true if the method lets devices multiply operands of 8 bits in units for these.
    pub(crate) fn multiplies_eight_bits(&self) -> bool {
        matches!(&self.scaling, Scaling::Gradient(GradientScaling { products: Products::EightBits, .. }))
    }

    /// Returns the format of the values that are stored at a slot. That of an activation or a weight is FP16 until it has an
    /// exponent ([`Sites::forward_active`]).
    #[must_use]
    pub fn format(&self, slot: Slot) -> StoreFormat {
        self.format_of_entry(&self.entries[usize::from(slot.0)])
    }

    fn format_of_entry(&self, entry: &SlotEntry) -> StoreFormat {
        match (&self.scaling, &entry.site) {
            (Scaling::Blocks(_), _) => self.format_of(entry.kind),
            (Scaling::Gradient(_), Some(site)) => site.config().format,
            (Scaling::Loss(_) | Scaling::Gradient(_), _) => StoreFormat::Fp16,
        }
    }

    /// Returns the block scaling of the method, if it has one.
    pub(crate) const fn block_scaling(&self) -> Option<BlockScaling> {
        match self.scaling {
            Scaling::Blocks(blocks) => Some(blocks),
            Scaling::Loss(_) | Scaling::Gradient(_) => None,
        }
    }

    /// Returns the rows of an attempt as rows of the formats of their slots, because devices and runtimes read all as rows of
    /// FP16.
    pub(super) fn rows_in_formats<'a>(&self, rows: &'a [Stats]) -> Cow<'a, [Stats]> {
        match &self.scaling {
            Scaling::Loss(_) => return Cow::Borrowed(rows),
            Scaling::Gradient(gradient) if gradient.formats == StoreFormats::default() => return Cow::Borrowed(rows),
            Scaling::Gradient(_) | Scaling::Blocks(_) => {}
        }
        let formats = self.entries.iter().map(|entry| self.format_of_entry(entry)).chain(repeat(StoreFormat::Fp16));
        rows.iter().zip(formats).map(|(row, format)| row.counted_in(format)).collect()
    }
}
