//! `floodway confirm`, `rollback` and `history`: what becomes of a program after it was applied.

use agent::{
    api::{
        By, ConfirmRequest, HistoryEntry, HistoryList, Outcome as Ending, PolicyStatus, RefusedFiles,
        RollbackRequest, Status, Unconfirmed,
    },
    client::Client,
};

use crate::{
    apply::sentence,
    arguments::Output,
    outcome::Outcome,
    table::{number, render, text},
};

const DAY_S: u64 = 86_400;

/// `30s`, `5m`, `1h`, or a number of seconds.
pub(crate) fn seconds(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        _ => None,
    };
    let seconds = unit.zip(digits.parse::<u32>().ok()).and_then(|(unit, count)| count.checked_mul(unit));
    let error = || "not a time from 1s to 1h, such as 30s or 5m".to_owned();
    seconds.filter(|seconds| (1..=3600).contains(seconds)).ok_or_else(error)
}

pub(crate) fn confirm(client: &Client, generation: Option<u32>, output: Output) -> Outcome {
    match client.confirm(&ConfirmRequest { generation }) {
        Ok(confirmed) => Outcome::answer(output, &confirmed, |kept| {
            format!("confirmed: generation {} stays\n", kept.generation)
        })
        .with_note(output, &confirmed.warnings.to_string()),
        Err(error) => Outcome::daemon(output, error, &[]),
    }
}

pub(crate) fn rollback(client: &Client, generation: Option<u32>, output: Output) -> Outcome {
    match client.rollback(&RollbackRequest { generation }) {
        Ok(applied) => {
            Outcome::answer(output, &applied, sentence).with_note(output, &applied.warnings.to_string())
        }
        Err(error) => Outcome::daemon(output, error, &[]),
    }
}

/// With a note of what an operator has to know of the present.
pub(crate) fn history(client: &Client, output: Output) -> Outcome {
    let asked = client.history().and_then(|history| Ok((history, client.status()?)));
    match asked {
        Ok((history, status)) => {
            Outcome::answer(output, &history, table).with_note(output, &present(&status))
        }
        Err(error) => Outcome::daemon(output, error, &[]),
    }
}

/// The policy's part of `show status`: whence it is, what waits, what was refused, what is watched and kept.
pub(crate) fn standing(status: &Status) -> Vec<(&'static str, String)> {
    let whence = match status.policy {
        PolicyStatus::Current => "current",
        PolicyStatus::LastGood => "last-good: the policy directory is refused",
    };
    let since = status.running.as_ref().map_or(String::new(), |entry| {
        format!(", by {} at {}, {}", by(entry.by), utc(entry.at_unix_s), ending(entry.outcome))
    });
    let mut lines = vec![("policy", format!("{whence}{since}"))];
    lines.extend(status.unconfirmed.as_ref().map(|Unconfirmed { generation, left_ms }| {
        ("waits", format!("generation {generation}, {} s more to be confirmed", left_ms / 1000))
    }));
    lines.extend(status.refused.as_ref().map(|RefusedFiles { at_unix_s, error, diagnostics }| {
        let more = match diagnostics.list.len() + diagnostics.omitted {
            0 => String::new(),
            _ => format!(": {}", diagnostics.list[0].to_string().replace('\n', ";")),
        };
        ("refused", format!("at {}, {error}{more}", utc(*at_unix_s)))
    }));
    lines.extend(status.watch.as_ref().map(|watch| {
        let polling = watch.polling.as_ref().map_or(String::new(), |why| format!(", every 2 s: {why}"));
        ("watch", format!("{}{polling}", watch.directory))
    }));
    lines.extend(status.state.as_ref().map(|state| {
        let error = state.error.as_ref().map_or(String::new(), |error| format!(", {error}"));
        ("state", format!("{}{error}", state.directory))
    }));
    lines
}

fn present(status: &Status) -> String {
    let waits = status.unconfirmed.as_ref().map(|Unconfirmed { generation, left_ms }| {
        let left_s = left_ms / 1000;
        format!("floodway: generation {generation} is rolled back in {left_s} s unless `floodway confirm` comes before\n")
    });
    let refused = status.refused.as_ref().map(|RefusedFiles { at_unix_s, error, diagnostics }| {
        format!("{diagnostics}floodway: refused at {}: {error}\n", utc(*at_unix_s))
    });
    let state = status.state.as_ref().and_then(|state| state.error.as_ref());
    let state = state.map(|error| format!("floodway: {error}\n"));
    [waits, refused, state].into_iter().flatten().collect()
}

/// Newest first.
fn table(history: &HistoryList) -> String {
    let columns = [number("GENERATION"), text("DIGEST"), text("WHEN"), text("BY"), text("OUTCOME")];
    let row = |entry: &HistoryEntry| {
        vec![
            entry.generation.to_string(),
            entry.digest.clone(),
            utc(entry.at_unix_s),
            by(entry.by).into(),
            ending(entry.outcome).into(),
        ]
    };
    render(&columns, history.generations.iter().rev().map(row))
}

fn by(by: By) -> &'static str {
    match by {
        By::Start => "start",
        By::LastGood => "last-good",
        By::Apply => "apply",
        By::Watch => "watch",
        By::Rollback => "rollback",
    }
}

fn ending(outcome: Ending) -> &'static str {
    match outcome {
        Ending::Confirmed => "confirmed",
        Ending::Unconfirmed => "unconfirmed",
        Ending::RolledBack => "rolled-back",
        Ending::Stuck => "stuck",
    }
}

/// RFC 3339, section 5.6, in UTC.
fn utc(unix_s: u64) -> String {
    let (year, month, day) = date(unix_s / DAY_S);
    let second = unix_s % DAY_S;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Of a day counted from 1970: the Gregorian calendar repeats after 400 years, and years are reckoned from March, so that
/// a leap day is a year's last.
fn date(day: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468;
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let day = day.saturating_add(DAYS_TO_1970);
    let (era, day) = (day / DAYS_OF_400_YEARS, day % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_confirm_are_bounded() {
        for (text, expected) in [("30s", 30), ("45", 45), ("5m", 300), ("1h", 3600), ("3600", 3600)] {
            assert_eq!(seconds(text), Ok(expected));
        }
        for text in ["", "s", "0", "0s", "3601", "2h", "1d", "-1s", "1.5s", "30 s", "99999999m", "ß"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    /// Known answers of `date -u -d @N`.
    #[test]
    fn times_are_those_of_the_calendar() {
        for (unix_s, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_796_169_600, "2026-12-02T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(unix_s), expected);
        }
        assert!(utc(u64::MAX).ends_with('Z'));
    }
}
