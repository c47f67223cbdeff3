//! Stores in 8 bits: the formats of a method, and what sites do with rows of these formats.

mod sites;
