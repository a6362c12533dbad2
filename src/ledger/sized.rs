//! Statements in a few fixed sizes. Each length of a list is a prepared statement of its own on the server, which keeps
//! only so many; so a list is cut into pieces of known sizes, and the last piece is padded where padding does no harm.

use std::ops::Range;
use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::session::Statement;
use crate::limits::STATEMENT_BYTES_MAX;

/// What an unused place weighs at most: a target twice, empty, and a number.
const PADDING_BYTES_MAX: usize = 16;

/// One statement's texts by the number of items they take, smallest first.
#[derive(Debug)]
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

    /// Cuts `len` items so that the smallest statement that holds what is left takes it. `bytes` says how much an item
    /// weighs; what is too heavy for one statement is cut into several.
    pub(super) fn padded(
        &self,
        len: usize,
        bytes: impl Fn(usize) -> usize,
    ) -> impl Iterator<Item = Piece<'_>> {
        self.cut(len, move |range| {
            let left = range.len();
            let holds = self.texts.iter().find(|(size, _)| *size >= left);
            match holds {
                Some(one)
                    if weight(range.clone(), &bytes) + (one.0 - left) * PADDING_BYTES_MAX
                        <= STATEMENT_BYTES_MAX =>
                {
                    Some(one)
                }
                _ => self.largest_within(range, &bytes),
            }
        })
    }

    /// Cuts `len` items without padding: the largest statement that is neither too large nor too heavy, down to single items.
    pub(super) fn exact(
        &self,
        len: usize,
        bytes: impl Fn(usize) -> usize,
    ) -> impl Iterator<Item = Piece<'_>> {
        self.cut(len, move |range| self.largest_within(range, &bytes))
    }

    fn largest_within(
        &self,
        range: Range<usize>,
        bytes: impl Fn(usize) -> usize,
    ) -> Option<&(usize, Arc<str>)> {
        let fits = |size: usize| {
            size <= range.len()
                && weight(range.start..range.start + size, &bytes) <= STATEMENT_BYTES_MAX
        };
        let found = self.texts.iter().rev().find(|(size, _)| fits(*size));
        found.or(self.texts.first())
    }

    fn cut<'a>(
        &'a self,
        len: usize,
        choose: impl Fn(Range<usize>) -> Option<&'a (usize, Arc<str>)>,
    ) -> impl Iterator<Item = Piece<'a>> {
        let mut start = 0;
        std::iter::from_fn(move || {
            if start == len {
                return None;
            }
            let (size, text) = choose(start..len)?;
            let end = len.min(start + size);
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

fn weight(range: Range<usize>, bytes: impl Fn(usize) -> usize) -> usize {
    range.map(bytes).sum()
}

/// For lists whose largest statement is light enough in any case that matters.
pub(super) fn light(_item: usize) -> usize {
    0
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
        assert_eq!(cut(sized.padded(0, light)), []);
        assert_eq!(cut(sized.padded(1, light)), [(0..1, 0)]);
        assert_eq!(cut(sized.padded(9, light)), [(0..9, 55)]);
        assert_eq!(
            cut(sized.padded(130, light)),
            [(0..64, 0), (64..128, 0), (128..130, 6)]
        );
    }

    #[test]
    fn rows_are_cut_without_padding() {
        let sized = Sized::new(&[1, 8], |size| size.to_string());
        assert_eq!(cut(sized.exact(0, light)), []);
        assert_eq!(
            cut(sized.exact(10, light)),
            [(0..8, 0), (8..9, 0), (9..10, 0)]
        );
    }

    #[test]
    fn heavy_items_are_cut_into_more_pieces() {
        let sized = Sized::new(&[1, 8], |size| size.to_string());
        let heavy = |item| if item < 8 { STATEMENT_BYTES_MAX / 4 } else { 1 };
        let ones = |range: Range<usize>| range.map(|at| (at..at + 1, 0)).collect::<Vec<_>>();
        let mut want = ones(0..5);
        want.push((5..10, 3));
        assert_eq!(cut(sized.padded(10, heavy)), want);
        let mut want = ones(0..5);
        want.push((5..13, 0));
        assert_eq!(cut(sized.exact(13, heavy)), want);
        let too_heavy = |_| STATEMENT_BYTES_MAX + 1;
        assert_eq!(cut(sized.exact(2, too_heavy)), ones(0..2));
    }
}
