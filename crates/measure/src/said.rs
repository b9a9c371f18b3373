//! Formats times and sizes for people.

/// Formats a time in ns, µs or ms: numbers below 100 with one decimal, larger numbers without decimals.
pub fn time(seconds: f64) -> String {
    let (number, unit) = match seconds {
        s if s < 1e-6 => (s * 1e9, "ns"),
        s if s < 1e-2 => (s * 1e6, "µs"),
        s => (s * 1e3, "ms"),
    };
    let digits = usize::from(number < 100.0);
    format!("{number:.digits$} {unit}")
}

/// Formats a size in MiB or KiB if it is a whole number of these units, otherwise in bytes.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// Shortens a name to at most `width` characters.
pub fn shortened(name: &str, width: usize) -> String {
    match name.chars().count() <= width {
        true => name.to_owned(),
        false => name.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut() {
        assert_eq!(shortened("lanes(node, between=ring)", 12), "lanes(node,…");
        assert_eq!(shortened("ring", 12), "ring");
    }

    #[test]
    fn times_and_sizes_have_units_that_suit_them() {
        assert_eq!(time(2.5e-7), "250 ns");
        assert_eq!(time(1.4956e-3), "1496 µs");
        assert_eq!(time(4.2e-6), "4.2 µs");
        assert_eq!(time(0.0231), "23.1 ms");
        let said = (bytes(8), bytes(4096), bytes(1 << 20), bytes(90_464));
        assert_eq!(said, ("8 B".into(), "4 KiB".into(), "1 MiB".into(), "90464 B".into()));
    }
}
