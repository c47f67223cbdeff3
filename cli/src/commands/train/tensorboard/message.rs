//! The wire format of protocol buffers, as far as it is needed.

/// Message of Protocol Buffers under construction: each call appends a field.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

/// Wire types of Protocol Buffers, the low three bits of each field's tag.
const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const LENGTH: u32 = 2;
const FIXED_32: u32 = 5;

impl Message {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn integer(self, field: u32, value: u64) -> Self {
        self.tag(field, VARINT).varint(value)
    }

    pub fn float(self, field: u32, value: f32) -> Self {
        self.tag(field, FIXED_32).raw(&value.to_le_bytes())
    }

    pub fn double(self, field: u32, value: f64) -> Self {
        self.tag(field, FIXED_64).raw(&value.to_le_bytes())
    }

    pub fn bytes(self, field: u32, value: &[u8]) -> Self {
        self.tag(field, LENGTH).varint(value.len() as u64).raw(value)
    }

    pub fn message(self, field: u32, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }

    /// Appends a field with a packed list of doubles.
    pub fn doubles(self, field: u32, values: &[f64]) -> Self {
        self.bytes(field, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
    }

    fn tag(self, field: u32, wire: u32) -> Self {
        self.varint(u64::from(field << 3 | wire))
    }

    /// Appends an integer as a varint: seven bits per byte, the lowest first; the eighth bit is set if more bytes
    /// follow.
    fn varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}
