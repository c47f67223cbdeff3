//! Constants of compiled programs: attention masks, interpolation matrices. Programs share constants with equal values.
//! A constant is freed when no program uses it any more.

/// Constants of cached programs by number, which is also the number of their buffer.
#[derive(Debug, Default)]
pub(crate) struct Constants(Vec<Constant>);

#[derive(Debug, Default)]
struct Constant {
    /// Values of the constant; empty if the number is free.
    values: Vec<f32>,
    uploaded: bool,
    /// Number of cached programs that use the constant.
    users: usize,
}

impl Constants {
    /// Returns the number of the cached constant with these values, and adds it if it is new.
    pub fn number(&mut self, values: Vec<f32>) -> usize {
        if let Some(known) = self.0.iter().position(|constant| constant.values == values) {
            return known;
        }
        let constant = Constant { values, ..Constant::default() };
        match self.0.iter().position(|constant| constant.values.is_empty()) {
            Some(free) => {
                self.0[free] = constant;
                free
            }
            None => {
                self.0.push(constant);
                self.0.len() - 1
            }
        }
    }

    /// Returns the next constant that has not been uploaded.
    pub(super) fn waiting(&self) -> Option<(usize, &[f32])> {
        let waits = |constant: &Constant| !constant.uploaded && !constant.values.is_empty();
        self.0.iter().position(waits).map(|number| (number, self.0[number].values.as_slice()))
    }

    pub(super) fn uploaded(&mut self, number: usize) {
        self.0[number].uploaded = true;
    }

    /// Adds a user to each of these constants. A program names each once.
    pub(super) fn hold(&mut self, numbers: &[usize]) {
        numbers.iter().for_each(|&number| self.0[number].users += 1);
    }

    /// Frees the constants that no program uses and that the next one does not need, and returns their numbers. They
    /// belong to programs whose compilation failed.
    pub(super) fn abandoned(&mut self, needed: &[usize]) -> Vec<usize> {
        let mut free = Vec::new();
        for (number, constant) in self.0.iter_mut().enumerate() {
            if constant.users == 0 && !constant.values.is_empty() && !needed.contains(&number) {
                *constant = Constant::default();
                free.push(number);
            }
        }
        free
    }

    /// Removes a user from each of these constants, and returns the numbers of those that became free.
    pub(super) fn release(&mut self, numbers: &[usize]) -> Vec<usize> {
        let mut free = Vec::new();
        for &number in numbers {
            let constant = &mut self.0[number];
            constant.users -= 1;
            if constant.users == 0 {
                *constant = Constant::default();
                free.push(number);
            }
        }
        free
    }

    /// Returns the bytes that would be freed if one user of these constants were removed.
    pub(super) fn alone(&self, numbers: &[usize]) -> u64 {
        numbers.iter().filter(|&&number| self.0[number].users == 1).map(|&number| self.0[number].bytes()).sum()
    }

    /// Returns the size of all constants in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(Constant::bytes).sum()
    }
}

impl Constant {
    fn bytes(&self) -> u64 {
        size_of_val(self.values.as_slice()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_again_when_nobody_uses_them() {
        let mut all = Constants::default();
        let [one, two] = [vec![1.0], vec![2.0, 3.0]].map(|values| all.number(values));
        assert_eq!(all.number(vec![1.0]), one);
        all.hold(&[one, two]);
        all.hold(&[two]);
        while let Some((number, _)) = all.waiting() {
            all.uploaded(number);
        }
        assert_eq!((all.bytes(), all.alone(&[one, two])), (12, 4));
        assert_eq!(all.release(&[one, two]), [one]);
        assert_eq!(all.bytes(), 8);
        // The number belongs to another constant, which has not been uploaded.
        assert_eq!(all.number(vec![5.0]), one);
        assert_eq!(all.waiting(), Some((one, [5.0].as_slice())));
        assert_eq!(all.release(&[two]), [two]);
        // A constant that no program has used is freed when the next one is needed.
        let three = all.number(vec![7.0]);
        assert_eq!(all.abandoned(&[three]), [one]);
        assert_eq!((all.waiting(), all.bytes()), (Some((three, [7.0].as_slice())), 4));
    }
}
