//! Stores in 8 bits: the formats of a method, what sites do with rows of these formats, and trainings.

mod blocks;
mod sites;
mod stores;
mod training;
