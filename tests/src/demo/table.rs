//! The table at the end: expectation, seen, verdict.

use super::checks::Seen;

/// One line of the table.
pub struct Row {
    /// What was to be seen.
    pub expectation: &'static str,
    /// What was seen.
    pub seen: Seen,
}

/// Longest text of a column before it is broken, in characters.
const WIDTH: usize = 62;

/// The whole table and a closing line.
pub fn render(rows: &[Row]) -> String {
    let width = |texts: &mut dyn Iterator<Item = &str>| {
        texts.flat_map(wrap).map(|line| line.chars().count()).max().unwrap_or(0)
    };
    let expectation = width(&mut rows.iter().map(|row| row.expectation).chain(["expectation"]));
    let seen = width(&mut rows.iter().map(|row| row.seen.text.as_str()).chain(["seen"]));
    let line =
        |left: &str, middle: &str, right: &str| format!("{left:expectation$}  {middle:seen$}  {right}\n");
    let mut table = line("expectation", "seen", "verdict");
    table += &line(&"-".repeat(expectation), &"-".repeat(seen), "-------");
    for row in rows {
        let (left, middle) = (wrap(row.expectation), wrap(&row.seen.text));
        for index in 0..left.len().max(middle.len()) {
            let text = |lines: &[String]| lines.get(index).cloned().unwrap_or_default();
            let verdict = if index > 0 { "" } else { verdict(row) };
            table += line(&text(&left), &text(&middle), verdict).trim_end();
            table += "\n";
        }
    }
    let differ = rows.iter().filter(|row| !row.seen.as_expected).count();
    table
        + &match differ {
            0 => format!("\nall {} expectations hold\n", rows.len()),
            some => format!("\n{some} of {} expectations differ\n", rows.len()),
        }
}

fn verdict(row: &Row) -> &'static str {
    if row.seen.as_expected { "ok" } else { "DIFFERS" }
}

/// Lines of at most [`WIDTH`] characters, broken at blanks.
fn wrap(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().filter(|line| line.chars().count() + word.chars().count() < WIDTH);
        match line {
            Some(line) if line.is_empty() => *line = word.into(),
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.into()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_differs_is_told_and_long_texts_are_broken() {
        let seen = |text: &str, as_expected| Seen { text: text.into(), as_expected };
        let rows = [
            Row { expectation: "red pings", seen: seen("5 of 5", true) },
            Row { expectation: "blue pings", seen: seen(&"nothing ".repeat(12), false) },
        ];
        let table = render(&rows);
        assert!(table.lines().nth(2).unwrap().ends_with("ok"));
        assert!(table.lines().nth(3).unwrap().ends_with("DIFFERS"));
        assert!(table.ends_with("1 of 2 expectations differ\n"));
        assert!(table.lines().all(|line| line.chars().count() < 110));
        assert!(render(&rows[..1]).ends_with("all 1 expectations hold\n"));
    }
}
