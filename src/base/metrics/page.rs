//! The text format of Prometheus, version 0.0.4: families one after the other, each with its help and its kind.

use std::fmt::Write as _;

use super::Histogram;

/// What a family's numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grow.
    Counter,
    /// Go up and down.
    Gauge,
    /// Buckets, a sum and a count.
    Histogram,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A page that is being written.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    /// What its bytes are.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Begins a family. All its samples follow, and no other family has this name.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        self.name = name;
        // Writing into a string cannot fail; so it is below.
        let _ = writeln!(self.text, "# HELP {name} {}", help.replace('\\', "\\\\").replace('\n', "\\n"));
        let _ = writeln!(self.text, "# TYPE {name} {}", kind.word());
    }

    /// A sample of the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.line("", labels, value);
    }

    /// The samples of a histogram of the family.
    pub fn histogram(&mut self, labels: &[(&str, &str)], histogram: &Histogram) {
        let (buckets, sum) = histogram.look();
        let mut so_far = 0;
        for (bound, count) in buckets {
            so_far += count;
            let bound = if bound.is_finite() { short(bound).to_string() } else { "+Inf".to_owned() };
            let with_bound: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.line("_bucket", &with_bound, so_far);
        }
        self.line("_sum", labels, sum);
        // Of the same look: it is the last bucket's.
        self.line("_count", labels, so_far);
    }

    /// The whole page.
    pub fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (at, (name, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"");
            escape(value, &mut self.text);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

/// A bound without the last digits of a product of floats, such as 0.0025000000000000005.
fn short(bound: f64) -> f64 {
    (bound * 1e6).round() / 1e6
}

fn escape(value: &str, text: &mut String) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SIZES;
    use super::*;

    #[test]
    fn families_are_written_with_help_kind_and_escaped_labels() {
        let mut page = Page::default();
        page.family("simse_x_total", Kind::Counter, "What it is,\nin words.");
        page.sample(&[], 3);
        page.sample(&[("a", "say \"no\"\\\n"), ("b", "ä")], 1.5);
        page.family("simse_size", Kind::Histogram, "Sizes.");
        let sizes = Histogram::new(&SIZES);
        sizes.record(2);
        sizes.record(1_000);
        page.histogram(&[("of", "x")], &sizes);
        let text = page.into_text();
        let want = "# HELP simse_x_total What it is,\\nin words.\n# TYPE simse_x_total counter\nsimse_x_total 3\n\
            simse_x_total{a=\"say \\\"no\\\"\\\\\\n\",b=\"ä\"} 1.5\n# HELP simse_size Sizes.\n# TYPE simse_size histogram\n\
            simse_size_bucket{of=\"x\",le=\"1\"} 0\nsimse_size_bucket{of=\"x\",le=\"2\"} 1\n";
        assert!(text.starts_with(want), "{text}");
        let end =
            "simse_size_bucket{of=\"x\",le=\"+Inf\"} 2\nsimse_size_sum{of=\"x\"} 1002\nsimse_size_count{of=\"x\"} 2\n";
        assert!(text.ends_with(end), "{text}");
        assert_eq!(short(2_500_000.0 * 1e-9).to_string(), "0.0025");
    }
}
