//! What a run says of the tests that failed, picked out of all that it says: the report of a long run ends
//! with it, where somebody looks first.

/// As many lines of a failure as say what is wrong with it.
const LINES: usize = 30;

/// Collects the lines that belong to failures.
#[derive(Default)]
pub struct Failures {
    texts: Vec<Vec<String>>,
    /// Whether the lines that come belong to the last of them.
    is_open: bool,
}

impl Failures {
    /// Another test failed, and this is the first line about it.
    pub fn begin(&mut self, line: &str) {
        self.texts.push(vec![line.into()]);
        self.is_open = true;
    }

    /// The line belongs to the test that failed last, if its lines have not ended.
    pub fn add(&mut self, line: &str) {
        if let Some(text) = self.texts.last_mut().filter(|_| self.is_open)
            && text.len() < LINES
        {
            text.push(line.into());
        }
    }

    /// What comes belongs to no failure.
    pub fn end(&mut self) {
        self.is_open = false;
    }

    /// A text for each that failed.
    pub fn into_texts(self) -> Vec<String> {
        let texts = self.texts.into_iter();
        texts
            .map(|text| text.join("\n").trim_end().into())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_outside_of_failures_are_left_out() {
        let mut failures = Failures::default();
        failures.add("before");
        failures.begin("first");
        failures.add("why");
        failures.end();
        failures.add("between");
        failures.begin("second");
        for _ in 0..2 * LINES {
            failures.add("much");
        }
        let texts = failures.into_texts();
        assert_eq!(texts[0], "first\nwhy");
        assert!(texts[1].starts_with("second\nmuch"));
        assert_eq!(texts[1].lines().count(), LINES);
        assert_eq!(texts.len(), 2);
    }
}
