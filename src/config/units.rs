//! Durations and sizes, as people write them.

use std::time::Duration;

use super::fault::Problem;

/// What a duration looks like, for messages.
pub(crate) const A_DURATION: &str = "a duration such as \"250ms\", \"30s\", \"2m\" or \"1h\"";
/// What a size looks like, for messages.
pub(crate) const A_SIZE: &str = "a size such as \"64MiB\"";
/// The pattern of a duration, for the schema.
pub(crate) const DURATION_PATTERN: &str = "^([0-9]+(\\.[0-9]+)?(ms|s|m|h|d))+$";
/// The pattern of a size, for the schema.
pub(crate) const SIZE_PATTERN: &str = "^[0-9]+(B|kB|KB|KiB|MB|MiB|GB|GiB)$";

const DURATION_UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZE_UNITS: [(&str, u64); 8] = [
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
];
/// Longer durations would overflow clocks, and nobody means them.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// Reads one or more numbers with units: `"90s"`, `"1m30s"`, `"1.5h"`.
pub(crate) fn duration(text: &str) -> Result<Duration, Problem> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() || text.is_empty() {
        let (number, unit, after) = split(rest);
        let parsed = plain_number(number).ok_or_else(|| bad_duration(text))?;
        let (_, millis) = DURATION_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(|| bad_duration(text))?;
        #[expect(clippy::cast_precision_loss, reason = "a unit has at most 27 bits")]
        let part = Duration::try_from_secs_f64(parsed * *millis as f64 / 1_000.0).map_err(|_| too_long())?;
        total = total.checked_add(part).filter(|sum| *sum <= LONGEST).ok_or_else(too_long)?;
        rest = after;
    }
    Ok(total)
}

/// Reads a whole number with a unit: `"64MiB"`.
pub(crate) fn size(text: &str) -> Result<u64, Problem> {
    let (number, unit, after) = split(text);
    let factor = SIZE_UNITS.iter().find(|(name, _)| *name == unit);
    let (Some((_, factor)), Ok(number), true) = (factor, number.parse::<u64>(), after.is_empty()) else {
        return Err(bad_size(text));
    };
    number.checked_mul(*factor).ok_or_else(|| bad_size(text))
}

/// A size in the largest binary unit that divides it, for messages.
pub(crate) fn spell_size(size: u64) -> String {
    for (unit, factor) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if size >= factor && size.is_multiple_of(factor) {
            return format!("{}{unit}", size / factor);
        }
    }
    format!("{size}B")
}

/// The leading number, the letters after it, and the rest.
fn split(text: &str) -> (&str, &str, &str) {
    let number = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(number);
    let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit);
    (number, unit, rest)
}

fn plain_number(text: &str) -> Option<f64> {
    let plain = text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with(|c: char| c.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

fn bad_duration(text: &str) -> Problem {
    let problem = Problem::mismatch(A_DURATION, &format!("{:?}", shorten(text)));
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
    let (number, unit, rest) = split(&compact);
    let unit = match unit {
        "" | "sec" | "secs" | "second" | "seconds" | "s" => "s",
        "msec" | "millis" | "milliseconds" | "ms" => "ms",
        "min" | "mins" | "minute" | "minutes" | "m" => "m",
        "hr" | "hrs" | "hour" | "hours" | "h" => "h",
        "day" | "days" | "d" => "d",
        _ => return problem.help("the units are ms, s, m, h and d"),
    };
    if plain_number(number).is_none() || !rest.is_empty() {
        return problem.help("the units are ms, s, m, h and d");
    }
    problem.help(format!("write \"{number}{unit}\""))
}

fn bad_size(text: &str) -> Problem {
    let problem = Problem::mismatch(A_SIZE, &format!("{:?}", shorten(text)));
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
    let (number, unit, rest) = split(&compact);
    let unit = match unit {
        "" | "b" | "byte" | "bytes" => "B",
        "k" | "ki" | "kib" => "KiB",
        "kb" => "kB",
        "m" | "mi" | "mib" => "MiB",
        "mb" => "MB",
        "g" | "gi" | "gib" => "GiB",
        "gb" => "GB",
        _ => return problem.help("the units are B, KiB, MiB, GiB, kB, MB and GB"),
    };
    if number.parse::<u64>().is_err() || !rest.is_empty() {
        return problem.help("write a whole number and one of the units B, KiB, MiB, GiB, kB, MB and GB");
    }
    problem.help(format!("write \"{number}{unit}\""))
}

fn too_long() -> Problem {
    Problem::new("this is longer than a year").help("write at most \"365d\"")
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= 40 { text.to_owned() } else { text.chars().take(39).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, millis) in [
            ("0s", 0),
            ("250ms", 250),
            ("30s", 30_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("1.5s", 1_500),
            ("1m30s", 90_000),
        ] {
            assert_eq!(duration(text).expect(text), Duration::from_millis(millis), "{text}");
        }
        for text in ["", "s", "30", "30 s", "-1s", "1.s", ".5s", "1e3s", "400d", "30S", "1ms2", "nan", "inf"] {
            duration(text).expect_err(text);
        }
        assert_eq!(duration("30 Seconds").unwrap_err().help.unwrap(), "write \"30s\"");
        assert_eq!(duration("5min").unwrap_err().help.unwrap(), "write \"5m\"");
        assert_eq!(duration("20").unwrap_err().help.unwrap(), "write \"20s\"");
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("1B", 1), ("8KiB", 8 << 10), ("64MiB", 64 << 20), ("1MB", 1_000_000), ("2GiB", 2 << 30)]
        {
            assert_eq!(size(text).expect(text), bytes, "{text}");
        }
        for text in ["", "64", "64M", "MiB", "1.5MiB", "-1B", "1MiB2", "99999999999GiB"] {
            size(text).expect_err(text);
        }
        assert_eq!(size("64M").unwrap_err().help.unwrap(), "write \"64MiB\"");
    }

    #[test]
    fn spelling_reads_back() {
        for bytes in [0, 1, 1_000, 1 << 10, 64 << 20, 1 << 30] {
            assert_eq!(size(&spell_size(bytes)).unwrap(), bytes);
        }
    }
}
