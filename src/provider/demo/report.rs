//! Reads what `node --test` printed, in either of its forms: TAP, and the one for people.

/// What a test run says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Report {
    /// Tests in all.
    pub tests: u32,
    /// Names of the tests that failed, in order.
    pub failing: Vec<String>,
    /// File and line of the first failing test.
    pub place: Option<(String, usize)>,
    /// What the first failed comparison got and what it wanted, when both are numbers.
    pub got_and_wanted: Option<(f64, f64)>,
    /// Whether the run says that everything passed.
    pub passed: bool,
}

/// Reads the output of a test run, as the shell tool gives it.
pub(super) fn read(output: &str) -> Report {
    let mut report = Report::default();
    let mut failed = None;
    for line in output.lines() {
        let trimmed = line.trim();
        if let Some(name) = failing_name(trimmed)
            && !report.failing.contains(&name)
        {
            report.failing.push(name);
        }
        if let Some(count) = summary(trimmed, "tests") {
            report.tests = count;
        }
        if let Some(count) = summary(trimmed, "fail") {
            failed = Some(count);
        }
        if report.got_and_wanted.is_none() {
            report.got_and_wanted = comparison(trimmed);
        }
        if report.place.is_none() && !report.failing.is_empty() {
            report.place = place(trimmed);
        }
    }
    report.passed = failed == Some(0) && report.tests > 0 && !output.starts_with("[exit code");
    report
}

/// `not ok 2 - name` or `✖ name (1.2ms)`. A whole file that failed is no test by itself.
fn failing_name(line: &str) -> Option<String> {
    let name = match line.strip_prefix("not ok ") {
        Some(rest) => rest.split_once(" - ")?.1,
        None => line.strip_prefix("✖ ")?.rsplit_once(" (")?.0,
    };
    let name = name.split(" # ").next().unwrap_or(name).trim();
    let is_file = [".js", ".mjs", ".cjs"].iter().any(|end| name.ends_with(end));
    (!name.is_empty() && !is_file).then(|| name.to_owned())
}

/// `# fail 1` or `ℹ fail 1`.
fn summary(line: &str, word: &str) -> Option<u32> {
    let rest = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ "))?;
    rest.strip_prefix(word)?.trim().parse().ok()
}

/// `440 !== 985`.
fn comparison(line: &str) -> Option<(f64, f64)> {
    let (got, wanted) = line.split_once(" !== ")?;
    Some((got.trim().parse().ok()?, wanted.trim().parse().ok()?))
}

/// `location: '/…/cart.test.js:15:1'` or `test at test/cart.test.js:15:1`.
fn place(line: &str) -> Option<(String, usize)> {
    let rest = line.strip_prefix("location: '").or_else(|| line.strip_prefix("test at "))?;
    let mut parts = rest.trim_end_matches('\'').rsplitn(3, ':');
    let _column = parts.next()?;
    let row = parts.next()?.parse().ok()?;
    Some((parts.next()?.to_owned(), row))
}
