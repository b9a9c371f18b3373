//! Numbered entities of the schedule language: ranks, tags, flags, requests and levels. Each is printed as the reader accepts it.

use std::fmt;

/// Rank of a process in the collective, from 0 to p−1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rank(pub u32);

/// Tag of a message. Messages between two ranks are matched by tag. Messages with equal tags are matched in the order of posting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tag(pub u32);

/// A flag that a rank owns in its node's segment, raised by `signal` and awaited by `wait`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Flag(pub u32);

impl Flag {
    /// Number of flags that a program may use on each rank.
    pub const COUNT: u32 = 4;
    /// First of the flag numbers that compiled barriers use, one for each of their rounds. Lower numbers are the program's own flags.
    pub const BARRIERS: u32 = 1 << 24;
}

/// Number of a request of one rank: a message in flight between its posting and its `finish`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Request(pub u32);

/// A level of the topology, outermost first: `node`, `socket`, `level2`, ….
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Level(pub u8);

impl Tag {
    /// Largest tag that every MPI supports: the lower limit of the standard for `MPI_TAG_UB`.
    pub const MAX: Tag = Tag(32_767);
}

impl Level {
    /// The outermost level: regions whose ranks share memory.
    pub const NODE: Level = Level(0);
    /// The level below the node: sockets.
    pub const SOCKET: Level = Level(1);

    /// Parses the name of a level in the form in which levels are printed.
    pub fn from_name(name: &str) -> Option<Level> {
        match name {
            "node" => Some(Level::NODE),
            "socket" => Some(Level::SOCKET),
            _ => {
                let number = name.strip_prefix("level")?;
                let level = Level(number.parse().ok().filter(|&n| n >= 2)?);
                (level.to_string() == name).then_some(level)
            }
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("node"),
            1 => f.write_str("socket"),
            n => write!(f, "level{n}"),
        }
    }
}

macro_rules! prints_as_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
prints_as_number!(Rank, Tag, Flag, Request);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_names_read_as_they_print() {
        for n in 0..=255 {
            assert_eq!(Level::from_name(&Level(n).to_string()), Some(Level(n)));
        }
        for bad in ["level0", "level1", "level02", "level256", "Node", ""] {
            assert_eq!(Level::from_name(bad), None, "{bad}");
        }
    }
}
