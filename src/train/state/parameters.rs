//! Parameters of a training, their owner, and the optimizer group of each.

use crate::{
    Error, Parameters, Shape,
    graph::{Fixed, ParameterInfo},
    optim::Optimizer,
    parameters::{Definition, Owner, Role},
    sites::{Sites, SlotKind},
    suggestion::suggestion,
};
use gradscale_core::{backend::Slot, ops::ShapeError};
use std::{
    collections::{BTreeSet, HashSet},
    ops::Range,
};

/// All parameters of a trainer, indexed by parameter id.
#[derive(Debug)]
pub(in crate::train) struct ParameterSet {
    /// Identity of the [`Parameters`] from which networks must come.
    pub owner: Owner,
    pub all: Vec<Definition>,
    /// Information about each parameter for the compiler, which treats frozen parameters as constants.
    pub infos: Vec<ParameterInfo>,
    /// Index of each parameter's group in the optimizer.
    pub groups: Vec<usize>,
}

impl ParameterSet {
    /// # Errors
    /// Two parameters with one name; a number of values that differs from the shape; an optimizer group without
    /// parameters; more parameters than a table has slots.
    pub fn new<E>(parameters: Parameters, optimizer: &Optimizer, sites: &mut Sites) -> Result<Self, Error<E>> {
        let mut names = HashSet::new();
        if let Some(twice) = parameters.all.iter().find(|one| !names.insert(one.name.as_str())) {
            return Err(Error::Duplicate(twice.name.clone()));
        }
        if let Some(wrong) = parameters.all.iter().find(|one| one.values.len() != one.shape.len()) {
            return Err(other_length(wrong, wrong.values.len()));
        }
        if let Some(large) = parameters.all.iter().find(|one| u32::try_from(one.shape.len()).is_err()) {
            return Err(Error::Parameter(format!(
                "parameter {} is {}: at most 2^32 − 1 values",
                large.name, large.shape
            )));
        }
        let fits = |one: &Definition, state| u32::try_from(optimizer.state_shape(state, one.shape).len()).is_ok();
        let mut trained = parameters.all.iter().filter(|one| one.role == Role::Weight);
        if !trained.all(|one| (0..optimizer.states()).all(|state| fits(one, state))) {
            return Err(Error::Optimizer(ShapeError::TooLarge));
        }
        let weights = parameters.all.iter().filter(|one| one.role == Role::Weight).map(|one| one.name.as_str());
        if let Some(prefix) = optimizer.idle_prefix(weights.clone()) {
            // The first words of all names are listed in the error, because the user may have meant one of these.
            let parts: BTreeSet<&str> =
                weights.map(|name| name.split_once('.').map_or(name, |(part, _)| part)).collect();
            let parts = parts.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Error::Group { prefix: prefix.to_owned(), parts });
        }
        let mut infos = Vec::new();
        for definition in &parameters.all {
            let slot = sites.slot(&definition.name, SlotKind::Parameter)?;
            let frozen = definition.role == Role::Weight && optimizer.freezes(&definition.name);
            let role = if frozen { Role::Constant } else { definition.role };
            infos.push(ParameterInfo { role, slot, len: definition.shape.len() });
        }
        let groups = parameters.all.iter().map(|one| optimizer.group_of(&one.name)).collect();
        Ok(Self { owner: parameters.owner, all: parameters.all, infos, groups })
    }

    /// Returns the ids of the parameters that the optimizer trains.
    pub fn weights(&self) -> impl Iterator<Item = usize> {
        let weight = |(id, info): (usize, &ParameterInfo)| (info.role == Role::Weight).then_some(id);
        self.infos.iter().enumerate().filter_map(weight)
    }

    /// Finds a parameter by name, and returns its id.
    pub fn find<E>(&self, name: &str) -> Result<usize, Error<E>> {
        let found = self.all.iter().position(|one| one.name == name);
        found.ok_or_else(|| {
            let similar = suggestion(name, self.all.iter().map(|one| one.name.as_str()));
            Error::Parameter(format!("there is no parameter {name}{similar}"))
        })
    }

    pub fn shape(&self, id: usize) -> Shape {
        self.all[id].shape
    }

    pub fn len(&self, id: usize) -> usize {
        self.all[id].shape.len()
    }

    /// Returns the layout of the buffers that are not freed between steps.
    pub fn fixed(&self) -> Fixed {
        Fixed { parameters: self.all.len() }
    }

    /// Returns the slots of all parameters, whose rows are those of their gradients.
    pub fn slots(&self) -> Range<u16> {
        let first = Slot::FIRST_SITE.0;
        first..first + u16::try_from(self.infos.len()).unwrap_or(u16::MAX - first)
    }

    /// Checks that a parameter has `len` values.
    pub fn check_len<E>(&self, id: usize, len: usize) -> Result<(), Error<E>> {
        if len == self.len(id) { Ok(()) } else { Err(other_length(&self.all[id], len)) }
    }
}

fn other_length<E>(definition: &Definition, values: usize) -> Error<E> {
    let Definition { name, shape, .. } = definition;
    Error::Parameter(format!("parameter {name} is {shape}, but {values} values were passed"))
}
