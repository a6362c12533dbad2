//! A site with tables of its own moves in.
