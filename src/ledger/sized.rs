//! Statements in a few fixed sizes. Each length of a list is a prepared statement of its own on the server, which keeps
//! only so many; so a list is cut into pieces of known sizes, and the last piece is padded where padding does no harm.

use std::ops::Range;
use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::session::Statement;

/// One statement's texts by the number of items they take, smallest first.
pub(super) struct Sized {
    texts: Vec<(usize, Arc<str>)>,
}

/// Some items of a list, the statement that takes them, and how many places of it are left over.
pub(super) struct Piece<'a> {
    text: &'a Arc<str>,
    /// The items.
    pub(super) range: Range<usize>,
    /// Places to fill with something that matches nothing.
    pub(super) padding: usize,
}

impl Piece<'_> {
    /// The statement, without arguments yet.
    pub(super) fn statement(&self) -> Statement {
        sqlx::query(AssertSqlSafe(Arc::clone(self.text)))
    }
}

impl Sized {
    /// Makes the texts; `sizes` rise.
    pub(super) fn new(sizes: &[usize], text: impl Fn(usize) -> String) -> Self {
        debug_assert!(sizes.is_sorted());
        Self {
            texts: sizes
                .iter()
                .map(|size| (*size, text(*size).into()))
                .collect(),
        }
    }

    /// Cuts `len` items so that the smallest statement that holds what is left takes it.
    pub(super) fn padded(&self, len: usize) -> impl Iterator<Item = Piece<'_>> {
        self.cut(len, |left| {
            self.texts
                .iter()
                .find(|(size, _)| *size >= left)
                .or(self.texts.last())
        })
    }

    /// Cuts `len` items without padding: the largest statement that is not too large, down to single items.
    pub(super) fn exact(&self, len: usize) -> impl Iterator<Item = Piece<'_>> {
        self.cut(len, |left| {
            self.texts.iter().rev().find(|(size, _)| *size <= left)
        })
    }

    fn cut<'a>(
        &'a self,
        len: usize,
        choose: impl Fn(usize) -> Option<&'a (usize, Arc<str>)>,
    ) -> impl Iterator<Item = Piece<'a>> {
        let mut start = 0;
        std::iter::from_fn(move || {
            let left = len - start;
            if left == 0 {
                return None;
            }
            let (size, text) = choose(left)?;
            let end = start + left.min(*size);
            let range = start..end;
            start = end;
            Some(Piece {
                text,
                padding: size - range.len(),
                range,
            })
        })
    }

    /// The text for the largest size.
    pub(super) fn largest(&self) -> &str {
        self.texts.last().map_or("", |(_, text)| text)
    }
}

/// `item` as often as told, with commas.
pub(super) fn list(item: &str, times: usize) -> String {
    vec![item; times].join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut<'a>(pieces: impl Iterator<Item = Piece<'a>>) -> Vec<(Range<usize>, usize)> {
        pieces.map(|piece| (piece.range, piece.padding)).collect()
    }

    #[test]
    fn lists_are_padded_to_the_next_size() {
        let sized = Sized::new(&[1, 8, 64], |size| size.to_string());
        assert_eq!(cut(sized.padded(0)), []);
        assert_eq!(cut(sized.padded(1)), [(0..1, 0)]);
        assert_eq!(cut(sized.padded(9)), [(0..9, 55)]);
        assert_eq!(
            cut(sized.padded(130)),
            [(0..64, 0), (64..128, 0), (128..130, 6)]
        );
    }

    #[test]
    fn rows_are_cut_without_padding() {
        let sized = Sized::new(&[1, 8], |size| size.to_string());
        assert_eq!(cut(sized.exact(0)), []);
        assert_eq!(cut(sized.exact(10)), [(0..8, 0), (8..9, 0), (9..10, 0)]);
    }
}
