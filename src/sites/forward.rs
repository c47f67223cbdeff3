//! Exponents of forward stores: when they begin, which overflows they concern, and exponents derived from two others.

use super::{Sites, SlotKind};
use crate::{ForwardScaling, Scaling, TraceError};
use gradscale_core::{
    activation_rules,
    backend::Slot,
    stats::Stats,
    step_outcome::{FirstNonFinite, NonFiniteKind},
};
use std::ops::Range;

/// Exponent of a slot that is computed from two others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Derivation {
    /// Exponent of a product's results: the sum.
    Product(Slot, Slot),
    /// Common exponent of two parts: the smaller one.
    Common(Slot, Slot),
}

impl Derivation {
    fn exponent(self, exponents: &[i32]) -> i32 {
        let read = |slot: Slot| exponents[usize::from(slot.0)];
        match self {
            Self::Product(a, b) => activation_rules::product(read(a), read(b)),
            Self::Common(a, b) => activation_rules::common(read(a), read(b)),
        }
    }
}

/// Functions that concern activations.
impl Sites {
    /// Gives forward stores exponents as the method says. The caller must then store them at [`Sites::exponent`], propagate
    /// the exponents, and compile its network again when [`Sites::forward_active`] changes.
    pub(crate) fn enable_forward(&mut self) {
        if let Scaling::Gradient(gradient) = &self.scaling
            && (gradient.repeats() || gradient.formats.scales_forward())
        {
            self.forward = gradient.forward;
        }
        if self.forward == ForwardScaling::On {
            self.raises_forward = true;
            self.activate_forward();
        }
        if self.block_scaling().is_some() {
            // Forward stores have formats like those with exponents. These stay 0.
            self.activate_forward();
        }
    }

    /// Gives forward stores exponents from now on, whatever the method says: for a runtime that itself decides when. Each
    /// slot of [`SlotKind::Forward`] becomes a site, whose [`Sites::exponent`] the caller must store and read with. With
    /// `raises`, small activations are scaled up too. Does nothing for a method with a loss scale.
    ///
    /// An overflow that shows in no gradient ends a step as [`Finished::Stepped`](super::Finished::Stepped) then, because
    /// such a runtime may have applied its update already.
    pub fn give_forward_exponents(&mut self, raises: bool) {
        self.raises_forward = raises;
        self.activate_forward();
    }

    /// Returns true if forward stores are sites, with exponents of their own.
    #[must_use]
    pub const fn forward_active(&self) -> bool {
        self.forward_active
    }

    /// Makes all forward stores sites.
    pub(super) fn activate_forward(&mut self) {
        self.forward_active = true;
        for index in 0..self.entries.len() {
            if self.entries[index].site.is_none() {
                self.entries[index].site = self.new_site(self.entries[index].kind);
            }
        }
    }

    /// Returns the slot whose exponent is derived from two others. Values without an exponent need no other slot.
    pub(crate) fn derive(&mut self, derivation: Derivation) -> Result<Slot, TraceError> {
        let name = match derivation {
            Derivation::Product(Slot::ONE, slot) | Derivation::Product(slot, Slot::ONE) => return Ok(slot),
            Derivation::Common(a, b) if a == b => return Ok(a),
            Derivation::Product(a, b) => format!("product of slots {} and {}", a.0, b.0),
            Derivation::Common(a, b) => format!("common exponent of slots {} and {}", a.0, b.0),
        };
        let slot = self.slot(&name, SlotKind::Derived)?;
        if self.derived.iter().all(|&(known, _)| known != slot) {
            self.derived.push((slot, derivation));
            self.update_derived();
        }
        Ok(slot)
    }

    /// Returns the slot of a store of the forward pass in an evaluation: that of the training, under whatever loss it has it.
    pub(crate) fn evaluation_slot(&mut self, name: &str, kind: SlotKind) -> Result<Slot, TraceError> {
        if !self.index.contains_key(name) {
            let is_same = |known: &str| known.split_once(':').is_some_and(|(_, known)| known == name);
            let trained = self.entries.iter().position(|entry| entry.kind == kind && is_same(&entry.name));
            if let Some(slot) = trained.and_then(|index| u16::try_from(index).ok()) {
                return Ok(Slot(slot));
            }
        }
        self.slot(name, kind)
    }

    /// Returns the slot of the gradient in a product with activations, and any other slot itself.
    pub(crate) fn gradient_slot(&self, slot: Slot) -> Slot {
        let product = self.derived.iter().find(|&&(known, _)| known == slot);
        match product {
            Some((_, Derivation::Product(gradient, _))) => self.gradient_slot(*gradient),
            Some((_, Derivation::Common(..))) | None => slot,
        }
    }

    pub(super) fn update_derived(&mut self) {
        for &(slot, derivation) in &self.derived {
            self.exponents[usize::from(slot.0)] = derivation.exponent(&self.exponents);
        }
    }

    /// Returns true if an overflow at a slot is one of an activation to which the method can give an exponent, and has not
    /// yet.
    pub(super) fn is_unscaled_overflow(&self, blame: FirstNonFinite, slot: Slot) -> bool {
        let waits = self.forward == ForwardScaling::Repeat && !self.forward_active;
        waits && blame.kind == NonFiniteKind::Overflow && self.kind(slot) == SlotKind::Forward
    }

    /// Returns the slots of forward stores whose overflow blocks the update of a step with these stores, even if all
    /// gradients are finite; none in a repeat, which `failed` attempts came before. There each store has decided from its
    /// own values, so what still overflows has no exponent that cures it, and is meant: a mask, for example.
    ///
    /// A guard is one range of slots. Those of the programs of a loss that was compiled first are all in one; stores that
    /// only later programs have may be missing.
    pub(crate) fn guarded_activations(&self, order: &[Slot], failed: u32) -> Range<u16> {
        let none = 0..0;
        if self.forward == ForwardScaling::Off || failed > 0 {
            return none;
        }
        let is_forward = |slot: &Slot| matches!(self.kind(*slot), SlotKind::Forward | SlotKind::Weight);
        let Some(first) = order.iter().copied().filter(is_forward).map(|slot| slot.0).min() else { return none };
        let rest = &self.entries[usize::from(first)..];
        // Nothing is stored to a derived slot.
        let is_read = |kind| matches!(kind, SlotKind::Forward | SlotKind::Weight | SlotKind::Derived);
        let len = rest.iter().take_while(|entry| is_read(entry.kind)).count();
        if rest[..len].iter().any(|entry| entry.keeps_overflow) {
            return none;
        }
        first..first.saturating_add(u16::try_from(len).unwrap_or(u16::MAX))
    }

    /// Returns the first overflow of an activation that has blocked the update of an attempt.
    pub(super) fn blocking_overflow(&self, rows: &[Stats], order: &[Slot], failed: u32) -> Option<FirstNonFinite> {
        let guarded = self.guarded_activations(order, failed);
        let overflow = |(site, slot): (usize, &Slot)| {
            let counts = rows[usize::from(slot.0)].counts();
            let kind = NonFiniteKind::Overflow;
            (counts.overflowed != 0).then_some(FirstNonFinite { site, kind, exponent: counts.exponent })
        };
        order.iter().enumerate().filter(|(_, slot)| guarded.contains(&slot.0)).find_map(overflow)
    }

    /// Records which activations still overflow in a repeat that was applied, so that they block no later update.
    pub(super) fn record_kept_overflows(&mut self, rows: &[Stats], order: &[Slot]) {
        for &slot in order {
            let entry = &mut self.entries[usize::from(slot.0)];
            let overflowed = rows[usize::from(slot.0)].counts().overflowed != 0;
            entry.keeps_overflow |= overflowed && entry.kind == SlotKind::Forward && entry.site.is_some();
        }
    }
}
