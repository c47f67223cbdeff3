//! Values that no step changes: masks of attention, matrices of interpolation. Programs share those that are equal, and
//! what no program uses any more is freed.

/// Values by number, which is also that of their buffer.
#[derive(Debug, Default)]
pub(crate) struct Constants(Vec<Constant>);

#[derive(Debug, Default)]
struct Constant {
    /// None where a number is free.
    values: Vec<f32>,
    uploaded: bool,
    /// Programs that use it.
    users: usize,
}

impl Constants {
    /// The number of these values.
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

    /// What has no memory yet.
    pub(super) fn waiting(&self) -> Option<(usize, &[f32])> {
        let waits = |constant: &Constant| !constant.uploaded && !constant.values.is_empty();
        self.0.iter().position(waits).map(|number| (number, self.0[number].values.as_slice()))
    }

    pub(super) fn uploaded(&mut self, number: usize) {
        self.0[number].uploaded = true;
    }

    /// A program uses these, each named once.
    pub(super) fn hold(&mut self, numbers: &[usize]) {
        numbers.iter().for_each(|&number| self.0[number].users += 1);
    }

    /// Numbers that no program uses, and that the next one does not need: of programs that could not be finished. They
    /// are free.
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

    /// A program that used these is gone; the numbers that nobody uses now, which are free.
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

    /// Bytes that would be free if nobody used these any more.
    pub(super) fn alone(&self, numbers: &[usize]) -> u64 {
        numbers.iter().filter(|&&number| self.0[number].users == 1).map(|&number| self.0[number].bytes()).sum()
    }

    /// Bytes of all.
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
        // Its number is taken by others, who have no memory yet.
        assert_eq!(all.number(vec![5.0]), one);
        assert_eq!(all.waiting(), Some((one, [5.0].as_slice())));
        assert_eq!(all.release(&[two]), [two]);
        // What nobody came to use goes when somebody else comes.
        let three = all.number(vec![7.0]);
        assert_eq!(all.abandoned(&[three]), [one]);
        assert_eq!((all.waiting(), all.bytes()), (Some((three, [7.0].as_slice())), 4));
    }
}
