//! A small stack of words that goes to the heap only when deep.

const INLINE: usize = 8;

/// A stack of `u64`: the first eight live in place, the rest in a `Vec`.
#[derive(Clone, Debug, Default)]
pub(super) struct Stack {
    len: usize,
    shallow: [u64; INLINE],
    deep: Vec<u64>,
}

impl Stack {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn push(&mut self, word: u64) {
        match self.shallow.get_mut(self.len) {
            Some(cell) => *cell = word,
            None => self.deep.push(word),
        }
        self.len += 1;
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        match self.shallow.get(self.len) {
            Some(word) => Some(*word),
            None => self.deep.pop(),
        }
    }

    #[inline]
    pub(super) fn top_mut(&mut self) -> Option<&mut u64> {
        let top = self.len.checked_sub(1)?;
        if top < INLINE { self.shallow.get_mut(top) } else { self.deep.last_mut() }
    }

    /// Empties it and gives back what a deep reply took.
    pub(super) fn clear(&mut self) {
        self.len = 0;
        if self.deep.capacity() > 0 {
            self.deep = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if the border between the inline and the heap part loses or reorders a word.
    #[test]
    fn order_holds_across_the_border() {
        let mut stack = Stack::default();
        for word in 0..20 {
            stack.push(word);
            assert_eq!(stack.top_mut().copied(), Some(word));
        }
        for word in (0..20).rev() {
            assert_eq!(stack.pop(), Some(word));
        }
        assert_eq!(stack.pop(), None);
        assert_eq!(stack.len(), 0);
    }
}
