//! The only way for external text to get onto the web page: escaped.

use std::fmt::{self, Display, Write};

/// Shows a value with everything escaped that means something in HTML, in text and in quoted attributes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Esc<T>(pub(super) T);

impl<T: Display> Display for Esc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper(f), "{}", self.0)
    }
}

struct Escaper<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            self.0.write_str(&rest[..at])?;
            self.0.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        self.0.write_str(rest)
    }
}

/// Opens an element for what may be wider than a phone; without a mouse the focused element scrolls.
pub(super) fn scrolling(label: &'static str) -> String {
    format!("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{label}\">")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_means_something_in_html_is_escaped() {
        let shown = Esc("<a href='x'>\"&amp;\" é</a>").to_string();
        assert_eq!(
            shown,
            "&lt;a href=&#39;x&#39;&gt;&quot;&amp;amp;&quot; é&lt;/a&gt;"
        );
    }
}
